// SPDX-License-Identifier: Apache-2.0
// Softmax over the last dim: y = e^(x - max) / sum e^(x - max).
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct SoftmaxArgs {
  TensorView x;  ///< [rows, C], contiguous
  TensorView y;  ///< [rows, C]; may be x
};
struct SoftmaxBackwardArgs {
  TensorView y;   ///< the forward output
  TensorView dy;  ///< [rows, C]
  TensorView dx;  ///< overwritten: y (dy - sum(dy y)); may be dy
};

template <DeviceType D>
void softmax_kernel(const SoftmaxArgs& args, Stream& stream);
template <DeviceType D>
void softmax_backward_kernel(const SoftmaxBackwardArgs& args, Stream& stream);

/// f64, f32, bf16, f16 (computed in f32, rounded once). -inf gives 0; a row of -inf gives NaN.
/// kShape error for a scalar.
Tensor softmax(const Tensor& x);
Tensor softmax_backward(const Tensor& y, const Tensor& dy);

}  // namespace tessera::ops

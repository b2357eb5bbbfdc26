// SPDX-License-Identifier: Apache-2.0
// GELU, tanh form (Hendrycks and Gimpel, arXiv 1606.08415):
// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct GeluArgs {
  TensorView x;  ///< contiguous
  TensorView y;  ///< contiguous, x's shape and dtype
};
struct GeluBackwardArgs {
  TensorView x;   ///< the forward input
  TensorView dy;  ///< x's shape
  TensorView dx;  ///< overwritten; may be dy
};

template <DeviceType D>
void gelu_kernel(const GeluArgs& args, Stream& stream);
template <DeviceType D>
void gelu_backward_kernel(const GeluBackwardArgs& args, Stream& stream);

Tensor gelu(const Tensor& x);
Tensor gelu_backward(const Tensor& x, const Tensor& dy);

}  // namespace tessera::ops

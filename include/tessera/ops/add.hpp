// SPDX-License-Identifier: Apache-2.0
// y = a + b with broadcasting from the right; also the accumulation y += alpha x.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct AddArgs {
  TensorView a;  ///< broadcast to y's shape (stride 0 where it repeats)
  TensorView b;  ///< likewise
  TensorView y;  ///< contiguous; may be a's or b's own memory when that has y's shape
};
struct AxpyArgs {
  TensorView x;  ///< contiguous, y's shape
  TensorView y;  ///< contiguous
  double alpha = 1.0;
};

template <DeviceType D>
void add_kernel(const AddArgs& args, Stream& stream);
template <DeviceType D>
void axpy_kernel(const AxpyArgs& args, Stream& stream);

/// f64, f32, f16 or bf16, equal on both sides; the low ones are added in f32 and rounded once.
/// kShape error when the shapes do not broadcast.
Tensor add(const Tensor& a, const Tensor& b);
/// y = a + b into `y` (contiguous, of the broadcast shape), which may be a or b itself; its version
/// is bumped.
void add_into(const Tensor& y, const Tensor& a, const Tensor& b);
/// y += alpha * x in place; y contiguous, x of its shape; y's version is bumped. x has y's dtype
/// (f64, f32, f16, bf16) or a lower one: f16 or bf16 for f32, f32 for f64. alpha is rounded to f32
/// where y is f32 or lower.
void axpy(const Tensor& y, const Tensor& x, double alpha = 1.0);

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// y = a b, element by element, with broadcasting from the right.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct MulArgs {
  TensorView a;  ///< broadcast to y's shape (stride 0 where it repeats)
  TensorView b;  ///< likewise
  TensorView y;  ///< contiguous; may be a's or b's own memory when that has y's shape
};

template <DeviceType D>
void mul_kernel(const MulArgs& args, Stream& stream);

/// f64, f32, f16 or bf16, equal on both sides; the low ones are multiplied in f32 and rounded once.
/// kShape error when the shapes do not broadcast.
Tensor mul(const Tensor& a, const Tensor& b);

}  // namespace tessera::ops

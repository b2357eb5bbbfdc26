// SPDX-License-Identifier: Apache-2.0
// y = factor * x.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct ScaleArgs {
  TensorView x;  ///< contiguous
  TensorView y;  ///< contiguous, x's shape and dtype; may be x
  double factor = 1.0;
};

template <DeviceType D>
void scale_kernel(const ScaleArgs& args, Stream& stream);

/// f64, f32, bf16, f16 (multiplied in f32, rounded once).
Tensor scale(const Tensor& x, double factor);
/// In place; the version is bumped.
void scale_(const Tensor& x, double factor);

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al., arXiv 2104.09864), half-split as in Llama's Hugging Face
// form: the pair (x_i, x_{i + D/2}) of a head turns by the angle position * frequency_i.
#pragma once

#include <cstdint>

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

enum class Rotation : std::uint8_t { kForward, kBackward };

struct RopeArgs {
  TensorView x;          ///< [B, T, H, D], any strides but D contiguous
  TensorView positions;  ///< [B, T] i32, contiguous; each in [0, P)
  TensorView cos, sin;   ///< [P, D/2], contiguous; f64 for f64, f32 otherwise
  TensorView y;          ///< [B, T, H, D], strided like x or not; may be x
  Rotation rotation = Rotation::kForward;
};

template <DeviceType D>
void rope_kernel(const RopeArgs& args, Stream& stream);

/// x [B, T, H, D] with D even, turned forward or back; a contiguous result. f64, f32, bf16, f16
/// (computed in f32, rounded once). kShape and kDType errors; kInvalidArgument where a position
/// lies outside the table.
Tensor rope(const Tensor& x, const Tensor& positions, const Tensor& cos, const Tensor& sin,
            Rotation rotation = Rotation::kForward);

}  // namespace tessera::ops

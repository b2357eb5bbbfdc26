// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: the table of angles, and the rotation.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// Cosines and sines of position * frequency.
struct RopeTable {
  Tensor cos, sin;  ///< [positions, D/2]; f64 or f32
};

/// `frequencies` per pair of a head (D/2 of them, radians per position); cos and sin are multiplied
/// by `factor` (YaRN's attention scaling, else 1). Computed in f64. `dtype` f64 or f32.
RopeTable make_rope_table(Context& context, const std::vector<double>& frequencies,
                          std::int64_t positions, DType dtype, double factor = 1.0);

/// x [B, T, H, D]. `positions` [B, T] i32 in any order (packed documents, zigzag); undefined: token
/// t of the whole sequence is at t, also where T is split over an axis. Only D must be whole.
Variable rope(const Variable& x, const RopeTable& table, const Variable& positions = {});

}  // namespace tessera::autograd

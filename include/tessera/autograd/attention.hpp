// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention.
#pragma once

#include "tessera/autograd/variable.hpp"
#include "tessera/ops/attention.hpp"

namespace tessera::autograd {

/// q [B, T, H, D], k and v [B, S, G, D]; result [B, T, H, D]. B, and H with G, may be sharded (for
/// 1 < G < H the unit of H's split is H / G times that of G's, a single key head may stay whole), T
/// as well without a mask; linear in v. `scale` 0 means 1 / sqrt(D).
Variable attention(const Variable& q, const Variable& k, const Variable& v,
                   ops::AttentionMask mask = ops::AttentionMask::kCausal, double scale = 0.0);
/// qkv [B, T, 3, H, D] packed: views, no copies; one packed gradient.
Variable attention(const Variable& qkv, ops::AttentionMask mask = ops::AttentionMask::kCausal,
                   double scale = 0.0);

}  // namespace tessera::autograd

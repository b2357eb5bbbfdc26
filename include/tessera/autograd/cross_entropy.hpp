// SPDX-License-Identifier: Apache-2.0
// Sum over tokens of the cross entropy.
#pragma once

#include "tessera/autograd/variable.hpp"
#include "tessera/ops/cross_entropy.hpp"

namespace tessera::autograd {

/// logits [..., V], targets [...] i32; result [] in f64: the sum over tokens that are not ignored.
/// Tokens sharded on an axis give P there.
Variable cross_entropy(const Variable& logits, const Variable& targets,
                       const ops::CrossEntropyOptions& options = {});
/// cross_entropy(linear(x, w), targets) without the logits of all tokens: x [..., C], w [V, C],
/// targets [...]. Logits are made, and turned into gradients, for some tokens at a time (64 MiB of
/// them); the gradients of x and w are computed with the loss, and only scaled by backward. In
/// regions without gradients only the loss is.
Variable linear_cross_entropy(const Variable& x, const Variable& w, const Variable& targets,
                              const ops::CrossEntropyOptions& options = {});

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
// Sum over tokens of the cross entropy.
#pragma once

#include "tessera/autograd/variable.hpp"
#include "tessera/ops/cross_entropy.hpp"

namespace tessera::autograd {

/// logits [..., V], targets [...] i32; result [] in f64: the sum over tokens that are not ignored.
/// Tokens sharded on an axis give P there.
Variable cross_entropy(const Variable& logits, const Variable& targets,
                       std::int32_t ignore_index = ops::kIgnoreIndex);

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
// Dropout by global coordinates: the same mask in every layout and in a recomputation.
#pragma once

#include "tessera/autograd/variable.hpp"
#include "tessera/core/random.hpp"

namespace tessera::autograd {

/// x [rows, ...]. The key is `site` (the run's seed and the module's qualified name, hashed) and
/// the step of Context::batch_origin(). Element coordinates are global: the offset of dim 0 is the
/// batch origin's first row plus this rank's shard offset, that of every other dim its shard offset
/// by x.type(); sharded dims must split evenly. p in [0, 1); p = 0 returns x. A V or P operand is a
/// type error; so is any operand on several ranks when the context does not check types.
Variable dropout(const Variable& x, double p, RandomKey site);

}  // namespace tessera::autograd

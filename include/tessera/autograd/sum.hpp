// SPDX-License-Identifier: Apache-2.0
// Sums over dims.
#pragma once

#include <span>

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// Sums over the dims listed; they are dropped. A sharded summed dim gives P.
Variable sum(const Variable& x, std::span<const int> dims);
/// Sum over all elements, shape [].
Variable sum(const Variable& x);

}  // namespace tessera::autograd

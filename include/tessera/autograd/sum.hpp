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
/// Means over the dims listed; they are dropped. Divides by the sizes of the whole: the mean over a
/// sharded dim is P, and right when it is reduced. kShape error for a mean over nothing.
Variable mean(const Variable& x, std::span<const int> dims);
/// Mean over all elements, shape [].
Variable mean(const Variable& x);

}  // namespace tessera::autograd

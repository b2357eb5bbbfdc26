// SPDX-License-Identifier: Apache-2.0
// a b, element by element, with broadcasting from the right.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// Floating dtypes, equal on both sides. Types: both alike (not P), P with R, or R with S where R
/// broadcasts.
Variable mul(const Variable& a, const Variable& b);

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
// a + b with broadcasting from the right.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// Floating dtypes, equal on both sides. Types: both alike, P + P, or R with S where R broadcasts.
Variable add(const Variable& a, const Variable& b);

}  // namespace tessera::autograd

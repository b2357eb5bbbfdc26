// SPDX-License-Identifier: Apache-2.0
// The same elements under another shape.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// x must be contiguous (a copy is made otherwise). A sharded dim must survive as itself, or be the
/// outermost of dims that merge (its unit grows) or that a dim splits into (its unit shrinks);
/// anything else is a type error. Sizes are local; one dim may be -1.
Variable reshape(const Variable& x, const Shape& shape);

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// table [V, C], indices [...] i32 (takes no gradient); result [..., C].
Variable embedding(const Variable& table, const Variable& indices);

}  // namespace tessera::autograd

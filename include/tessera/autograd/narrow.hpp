// SPDX-License-Identifier: Apache-2.0
// A range of one dim; a view.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// Elements [first, first + size) of `dim`, which must be whole (not sharded).
Variable narrow(const Variable& x, int dim, std::int64_t first, std::int64_t size);

}  // namespace tessera::autograd

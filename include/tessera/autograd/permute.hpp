// SPDX-License-Identifier: Apache-2.0
// Dims in a new order; a view.
#pragma once

#include <initializer_list>
#include <span>

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// Result dim i is dim order[i] of x.
Variable permute(const Variable& x, std::span<const int> order);
Variable permute(const Variable& x, std::initializer_list<int> order);

}  // namespace tessera::autograd

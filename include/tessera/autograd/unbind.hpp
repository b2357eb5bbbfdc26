// SPDX-License-Identifier: Apache-2.0
// The parts of a packed tensor.
#pragma once

#include <vector>

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// The slices of x along `dim`, which is dropped: views, no copies; one packed gradient. `dim` must
/// be whole on every axis.
std::vector<Variable> unbind(const Variable& x, int dim);

}  // namespace tessera::autograd

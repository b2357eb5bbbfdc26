// SPDX-License-Identifier: Apache-2.0
// Activation functions (formulas in ops/activation.hpp), element by element.
#pragma once

#include "tessera/autograd/variable.hpp"
#include "tessera/ops/activation.hpp"

namespace tessera::autograd {

Variable activation(const Variable& x, ops::Activation kind);

}  // namespace tessera::autograd

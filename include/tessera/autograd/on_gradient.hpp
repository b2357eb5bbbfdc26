// SPDX-License-Identifier: Apache-2.0
// Identity forward; calls back when the gradient passes in backward.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// `hook` runs in backward with the gradient at this point, before it flows on.
Variable on_gradient(const Variable& x, std::function<void(const Tensor&)> hook);

}  // namespace tessera::autograd

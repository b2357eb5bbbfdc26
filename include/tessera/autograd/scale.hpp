// SPDX-License-Identifier: Apache-2.0
// factor * x; linear, so P passes.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

Variable scale(const Variable& x, double factor);

}  // namespace tessera::autograd

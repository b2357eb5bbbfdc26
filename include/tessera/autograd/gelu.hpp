// SPDX-License-Identifier: Apache-2.0
// GELU, tanh form.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

Variable gelu(const Variable& x);

}  // namespace tessera::autograd

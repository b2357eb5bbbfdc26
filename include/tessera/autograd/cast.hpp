// SPDX-License-Identifier: Apache-2.0
// Conversion to another floating dtype; the gradient is converted back.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

Variable cast(const Variable& x, DType dtype);

}  // namespace tessera::autograd

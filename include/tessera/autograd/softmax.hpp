// SPDX-License-Identifier: Apache-2.0
// Softmax over the last dim.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// x [..., C]; the last dim must be whole.
Variable softmax(const Variable& x);

}  // namespace tessera::autograd

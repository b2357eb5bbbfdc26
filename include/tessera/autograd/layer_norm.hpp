// SPDX-License-Identifier: Apache-2.0
// LayerNorm over the last dim.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// x [..., C], weight and bias [C]; the last dim must be whole.
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    double eps = 1e-5);

}  // namespace tessera::autograd

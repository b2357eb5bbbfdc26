// SPDX-License-Identifier: Apache-2.0
// y = act(gate) up of a packed projection: SwiGLU, GEGLU.
#pragma once

#include "tessera/autograd/variable.hpp"
#include "tessera/ops/activation.hpp"

namespace tessera::autograd {

/// x [..., 2, F] (gate, up) gives [..., F]; the packing dim must be whole on every axis.
Variable gated_activation(const Variable& x, ops::Activation kind);

}  // namespace tessera::autograd

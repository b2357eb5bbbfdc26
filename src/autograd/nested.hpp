// SPDX-License-Identifier: Apache-2.0
// A backward pass inside a gradient closure.
#pragma once

#include <span>

#include "tessera/autograd/backward.hpp"
#include "tessera/autograd/op.hpp"

namespace tessera::autograd {

/// A whole pass whose gradients go to `sink`, as they come: variables[i] (a leaf, or a Variable at
/// which the graph is cut) is input i there. Nothing accumulates elsewhere and no hook fires.
void backward_into(Gradients& sink, std::span<const Root> roots,
                   std::span<const Variable> variables, KeepGraph keep);

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
// Recomputation of a region (Chen et al., arXiv 1604.06174): the forward pass keeps only the
// region's inputs, the backward pass runs the region again. Random numbers are functions of
// indices, so the second run is the first one bit for bit. Parameters used inside get their
// gradients through the region's own node: their hooks fire once, in order, tied or not.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

using Region = std::function<std::vector<Variable>(std::span<const Variable>)>;

/// region(inputs), recomputed in backward. Outside grad mode it is just region(inputs). Other
/// Variables that the region captures get their gradients too. In a kInput pass the region's weight
/// gradients come at once: nothing of it is deferred. At most 64 inputs and captured Variables.
std::vector<Variable> recompute(const Region& region, std::span<const Variable> inputs);

}  // namespace tessera::autograd

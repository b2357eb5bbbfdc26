// SPDX-License-Identifier: Apache-2.0
// Tensors behind each other along a dim.
#pragma once

#include <span>

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// 1 to 64 parts of one dtype and, but for `dim`, one shape. `dim` must be whole on every axis (of
/// pieces that are split along it the result would be a permutation); P joins only P. kShape,
/// kDType errors.
Variable concat(std::span<const Variable> parts, int dim);

}  // namespace tessera::autograd

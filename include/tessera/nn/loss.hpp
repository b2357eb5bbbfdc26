// SPDX-License-Identifier: Apache-2.0
// A loss is a list of terms. Each is a sum over tokens with its global weight and a coefficient:
// the loss is sum of coefficient * sum / weight, and the gradient of a term starts from coefficient
// / weight. The weight is global and known before forward (all-reduced when the batch is formed),
// so that afterwards every gradient reduction is a plain sum, in any layout and under accumulation.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/autograd/backward.hpp"
#include "tessera/autograd/variable.hpp"
#include "tessera/spmd/mesh.hpp"

namespace tessera::nn {

struct LossTerm {
  std::string name;
  autograd::Variable
      sum;              ///< [] f64: this rank's and micro-batch's part; P (or I) on the data axes
  double weight = 0.0;  ///< global, over the whole step; 0 gives no gradient
  double coefficient = 1.0;
};

/// Roots for backward: each term's sum with gradient scale * coefficient / weight (0 for weight 0).
/// Throws Error{kShardingType} for a sum that is not P or I on every axis.
std::vector<autograd::Root> loss_roots(std::span<const LossTerm> terms, double loss_scale = 1.0);

/// coefficient * sum / weight over the terms: this rank's part of the global loss.
double local_loss(std::span<const LossTerm> terms);

}  // namespace tessera::nn

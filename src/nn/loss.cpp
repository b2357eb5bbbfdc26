// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/loss.hpp"

#include "tessera/ops/copy.hpp"

namespace tessera::nn {

std::vector<autograd::Root> loss_roots(std::span<const LossTerm> terms, double loss_scale) {
  std::vector<autograd::Root> roots;
  for (const LossTerm& term : terms) {
    autograd::require_seed_counts_once(term.sum, "the loss term " + term.name);
    const Tensor& sum = term.sum.value();
    const Tensor seed = Tensor::empty(sum.context(), sum.shape(), sum.dtype());
    ops::fill(seed, term.weight > 0.0 ? loss_scale * term.coefficient / term.weight : 0.0);
    roots.push_back({term.sum, seed});
  }
  return roots;
}

double local_loss(std::span<const LossTerm> terms) {
  double loss = 0.0;
  for (const LossTerm& term : terms) {
    if (term.weight > 0.0) loss += term.coefficient * term.sum.value().item() / term.weight;
  }
  return loss;
}

}  // namespace tessera::nn

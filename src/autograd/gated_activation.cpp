// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/gated_activation.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/ops/gated_activation.hpp"

namespace tessera::autograd {

Variable gated_activation(const Variable& x, ops::Activation kind) {
  const int rank = x.rank();
  TESSERA_CHECK(rank >= 2, "gated_activation: x must be [..., 2, F], not {}",
                x.shape().to_string());
  DimLabels result = labels_of(rank - 2);
  result.push_back(rank - 1);
  Op op("gated_activation", {x},
        TypeRule().input(labels_of(rank)).result(result).needs_whole(rank - 2));
  if (op.needs(0)) {
    op.gradient({0}, [x = Saved(x), kind](Gradients& g) {
      g.add(0, ops::gated_activation_backward(x.get(), g.dy(), kind));
    });
  }
  return op.output(ops::gated_activation(x.value(), kind));
}

}  // namespace tessera::autograd

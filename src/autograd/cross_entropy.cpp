// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/cross_entropy.hpp"

#include "tessera/autograd/op.hpp"

namespace tessera::autograd {

Variable cross_entropy(const Variable& logits, const Variable& targets, std::int32_t ignore_index) {
  const int rank = targets.rank();
  Op op("cross_entropy", {logits, targets},
        TypeRule()
            .input(labels_of(rank + 1))
            .input(labels_of(rank))
            .result(DimLabels{})
            .needs_whole(rank));
  ops::CrossEntropyResult result =
      ops::cross_entropy(logits.value(), targets.value(), ignore_index);
  if (op.needs(0)) {
    op.gradient({0}, [logits = Saved(logits), targets = Saved(targets), lse = Saved(result.lse),
                      ignore_index](Gradients& g) {
      g.add(0, ops::cross_entropy_backward(g.dy().item(), logits.get(), targets.get(), lse.get(),
                                           ignore_index));
    });
  }
  return op.output(std::move(result.sum));
}

}  // namespace tessera::autograd

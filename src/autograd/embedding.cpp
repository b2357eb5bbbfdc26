// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/embedding.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/ops/embedding.hpp"
#include "weight_sum.hpp"

namespace tessera::autograd {

Variable embedding(const Variable& table, const Variable& indices) {
  TESSERA_CHECK(table.rank() == 2, "embedding: the table must be [V, C], not {}",
                table.shape().to_string());
  const int rank = indices.rank();
  // Labels: 0.. the dims of indices, then C, then V.
  DimLabels result = labels_of(rank);
  result.push_back(rank);
  Op op("embedding", {table, indices},
        TypeRule()
            .input({rank + 1, rank})
            .input(labels_of(rank))
            .result(result)
            .needs_whole(rank + 1)
            .linear_in(0));
  if (op.needs(0)) {
    op.gradient({0}, [indices = Saved(indices), shape = table.shape()](Gradients& g) {
      WeightSum dtable(g, 0, g.dy(), shape);
      ops::embedding_backward(dtable.tensor(), g.dy(), indices.get());
      dtable.add();
    });
  }
  return op.output(ops::embedding(table.value(), indices.value()));
}

}  // namespace tessera::autograd

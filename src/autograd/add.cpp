// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/add.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/ops/add.hpp"
#include "tessera/ops/sum.hpp"

namespace tessera::autograd {

Variable add(const Variable& a, const Variable& b) {
  Op op("add", {a, b}, broadcast_sum_rule(a.shape(), b.shape()));
  op.gradient({0}, [shape = a.shape()](Gradients& g) { g.add(0, ops::sum_to(g.dy(), shape)); });
  op.gradient({1}, [shape = b.shape()](Gradients& g) { g.add(1, ops::sum_to(g.dy(), shape)); });
  return op.output(ops::add(a.value(), b.value()));
}

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/mul.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/ops/mul.hpp"
#include "tessera/ops/sum.hpp"

namespace tessera::autograd {

Variable mul(const Variable& a, const Variable& b) {
  Op op("mul", {a, b}, broadcast_product_rule(a.shape(), b.shape()));
  if (op.needs(0)) {
    op.gradient({0}, [b = Saved(b), shape = a.shape()](Gradients& g) {
      g.add(0, ops::sum_to(ops::mul(g.dy(), b.get()), shape));
    });
  }
  if (op.needs(1)) {
    op.gradient({1}, [a = Saved(a), shape = b.shape()](Gradients& g) {
      g.add(1, ops::sum_to(ops::mul(g.dy(), a.get()), shape));
    });
  }
  return op.output(ops::mul(a.value(), b.value()));
}

}  // namespace tessera::autograd

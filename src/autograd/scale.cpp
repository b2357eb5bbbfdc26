// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/scale.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/ops/scale.hpp"

namespace tessera::autograd {

Variable scale(const Variable& x, double factor) {
  Op op("scale", {x}, elementwise_linear_rule(x.rank()));
  op.gradient({0}, [factor](Gradients& g) { g.add(0, ops::scale(g.dy(), factor)); });
  return op.output(ops::scale(x.value(), factor));
}

}  // namespace tessera::autograd

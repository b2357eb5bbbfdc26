// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/softmax.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/ops/softmax.hpp"

namespace tessera::autograd {

Variable softmax(const Variable& x) {
  TESSERA_CHECK(x.rank() >= 1, "softmax: x needs a last dim");
  Op op("softmax", {x}, elementwise_rule(x.rank()).needs_whole(x.rank() - 1));
  Tensor y = ops::softmax(x.value());
  if (op.needs(0)) {
    op.gradient({0},
                [y = Saved(y)](Gradients& g) { g.add(0, ops::softmax_backward(y.get(), g.dy())); });
  }
  return op.output(std::move(y));
}

}  // namespace tessera::autograd

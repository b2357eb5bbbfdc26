// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/gelu.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/ops/gelu.hpp"

namespace tessera::autograd {

Variable gelu(const Variable& x) {
  Op op("gelu", {x}, elementwise_rule(x.rank()));
  if (op.needs(0)) {
    op.gradient({0},
                [x = Saved(x)](Gradients& g) { g.add(0, ops::gelu_backward(x.get(), g.dy())); });
  }
  return op.output(ops::gelu(x.value()));
}

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/on_gradient.hpp"

#include "tessera/autograd/op.hpp"

namespace tessera::autograd {

Variable on_gradient(const Variable& x, std::function<void(const Tensor&)> hook) {
  Op op("on_gradient", {x}, elementwise_linear_rule(x.rank()));
  op.gradient({0}, [hook = std::move(hook)](Gradients& g) {
    hook(g.dy());
    g.add(0, g.dy());
  });
  return op.output(x.value());
}

}  // namespace tessera::autograd

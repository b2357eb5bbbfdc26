// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/activation.hpp"

#include "tessera/autograd/op.hpp"

namespace tessera::autograd {
namespace {

const char* name_of(ops::Activation kind) {
  switch (kind) {
    case ops::Activation::kGelu:
      return "gelu";
    case ops::Activation::kGeluErf:
      return "gelu_erf";
    case ops::Activation::kSilu:
      return "silu";
    case ops::Activation::kRelu:
      return "relu";
  }
  return "activation";
}

}  // namespace

Variable activation(const Variable& x, ops::Activation kind) {
  Op op(name_of(kind), {x}, elementwise_rule(x.rank()));
  if (op.needs(0)) {
    op.gradient({0}, [x = Saved(x), kind](Gradients& g) {
      g.add(0, ops::activation_backward(x.get(), g.dy(), kind));
    });
  }
  return op.output(ops::activation(x.value(), kind));
}

}  // namespace tessera::autograd

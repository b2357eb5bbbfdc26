// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/cast.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::autograd {

Variable cast(const Variable& x, DType dtype) {
  Op op("cast", {x}, elementwise_linear_rule(x.rank()), OpSide::kConversion);
  op.gradient({0}, [from = x.dtype()](Gradients& g) { g.add(0, ops::cast(g.dy(), from)); });
  return op.output(ops::cast(x.value(), dtype));
}

}  // namespace tessera::autograd

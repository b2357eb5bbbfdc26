// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/narrow.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::autograd {

Variable narrow(const Variable& x, int dim, std::int64_t first, std::int64_t size) {
  Tensor value = x.value().narrow(dim, first, size);
  Op op("narrow", {x}, elementwise_linear_rule(x.rank()).needs_whole(dim), OpSide::kConversion);
  op.gradient({0}, [shape = x.shape(), dim, first, size](Gradients& g) {
    const Tensor& dy = g.dy();
    const Tensor dx = Tensor::zeros(dy.context(), shape, dy.dtype());
    ops::copy_into(dx.narrow(dim, first, size), dy);
    g.add(0, dx);
  });
  return op.output(std::move(value));
}

}  // namespace tessera::autograd

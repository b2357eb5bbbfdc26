// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/unbind.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::autograd {

std::vector<Variable> unbind(const Variable& x, int dim) {
  TESSERA_CHECK(dim >= 0 && dim < x.rank(), "unbind: {} is not a dim of {}", dim,
                x.shape().to_string());
  DimLabels result;
  for (int d = 0; d < x.rank(); ++d) {
    if (d != dim) result.push_back(d);
  }
  Op op("unbind", {x},
        TypeRule().input(labels_of(x.rank())).result(result).linear_in(0).needs_whole(dim),
        OpSide::kConversion);
  op.gradient({0}, [shape = x.shape(), dtype = x.dtype(), dim](Gradients& g) {
    const Tensor dx = Tensor::empty(g.dy(0).context(), shape, dtype);
    for (int i = 0; i < static_cast<int>(shape[dim]); ++i) {
      ops::copy_into(dx.select(dim, i), g.dy(i));
    }
    g.add(0, dx);
  });
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < x.shape()[dim]; ++i) parts.push_back(x.value().select(dim, i));
  const std::vector<ShardingType> types(parts.size(), op.type());
  return op.outputs(parts, types);
}

}  // namespace tessera::autograd

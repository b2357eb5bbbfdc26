// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/permute.hpp"

#include <vector>

#include "tessera/autograd/op.hpp"

namespace tessera::autograd {

Variable permute(const Variable& x, std::span<const int> order) {
  Tensor value = x.value().permute(order);
  DimLabels result;
  std::vector<int> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.push_back(order[i]);
    inverse[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }
  Op op("permute", {x}, TypeRule().input(labels_of(x.rank())).result(result).linear_in(0),
        OpSide::kConversion);
  op.gradient({0}, [inverse](Gradients& g) { g.add(0, g.dy().permute(inverse)); });
  return op.output(std::move(value));
}

Variable permute(const Variable& x, std::initializer_list<int> order) {
  return permute(x, std::span<const int>(order.begin(), order.size()));
}

}  // namespace tessera::autograd

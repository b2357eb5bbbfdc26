// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/sum.hpp"

#include <algorithm>
#include <vector>

#include "tessera/autograd/op.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/ops/sum.hpp"

namespace tessera::autograd {

Variable sum(const Variable& x, std::span<const int> dims) {
  Tensor value = ops::sum(x.value(), dims);
  DimLabels result;
  Shape kept = x.shape();
  for (int i = 0; i < x.rank(); ++i) {
    const bool is_summed = std::find(dims.begin(), dims.end(), i) != dims.end();
    if (is_summed) {
      kept[i] = 1;
    } else {
      result.push_back(i);
    }
  }
  Op op("sum", {x}, TypeRule().input(labels_of(x.rank())).result(result).linear_in(0));
  op.gradient({0}, [kept, shape = x.shape()](Gradients& g) {
    g.add(0, ops::copy(g.dy().reshape(kept).broadcast_to(shape)));
  });
  return op.output(std::move(value));
}

Variable sum(const Variable& x) {
  std::vector<int> dims(static_cast<std::size_t>(x.rank()));
  for (int i = 0; i < x.rank(); ++i) dims[static_cast<std::size_t>(i)] = i;
  return sum(x, dims);
}

}  // namespace tessera::autograd

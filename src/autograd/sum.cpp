// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/sum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/autograd/op.hpp"
#include "tessera/autograd/scale.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/ops/sum.hpp"

namespace tessera::autograd {
namespace {

std::vector<int> all_dims(const Variable& x) {
  std::vector<int> dims(static_cast<std::size_t>(x.rank()));
  for (int i = 0; i < x.rank(); ++i) dims[static_cast<std::size_t>(i)] = i;
  return dims;
}

[[noreturn]] void reject_varying(const Variable& x, AxisId axis) {
  throw Error(ErrorCode::kShardingType,
              fmt::format("mean: on mesh axis {} the operand is V, so that the number of elements "
                          "is unknown. Sum it, reduce (V->P->R), and divide by the count",
                          x.type().axes()->axes[static_cast<std::size_t>(axis)].name));
}

}  // namespace

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

Variable sum(const Variable& x) { return sum(x, all_dims(x)); }

Variable mean(const Variable& x, std::span<const int> dims) {
  std::int64_t count = 1;
  for (const int dim : dims) {
    TESSERA_CHECK(dim >= 0 && dim < x.rank(), "mean: {} is not a dim of {}", dim,
                  x.shape().to_string());
    std::int64_t size = x.shape()[dim];
    for (AxisId axis = 0; axis < x.type().count(); ++axis) {
      const AxisType& type = x.type()[axis];
      if (type.kind == AxisKind::kShard && type.dim == dim) size = type.size;
      if (type.kind == AxisKind::kVarying) reject_varying(x, axis);
    }
    count *= size;
  }
  if (count == 0) {
    throw Error(ErrorCode::kShape, fmt::format("mean over no elements of {}; its dims are [{}]",
                                               x.shape().to_string(), fmt::join(dims, ", ")));
  }
  return scale(sum(x, dims), 1.0 / static_cast<double>(count));
}

Variable mean(const Variable& x) { return mean(x, all_dims(x)); }

}  // namespace tessera::autograd

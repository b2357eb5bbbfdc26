// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/reshape.hpp"

#include <fmt/format.h>

#include "tessera/autograd/op.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::autograd {
namespace {

/// The type of one axis after a reshape of local sizes `from` -> `to`. A split dim must begin a run
/// of dims (same number of elements before it), so that its chunks stay contiguous; its unit is
/// counted in elements of the new dim.
AxisType reshaped(const AxisType& type, const Shape& from, const Shape& to,
                  const std::string& axis) {
  if (type.kind != AxisKind::kShard) return type;
  const std::int64_t before = from.numel(0, type.dim);
  std::int64_t seen = 1;
  for (int dim = 0; dim < to.rank(); ++dim) {
    if (seen == before && (to[dim] != 1 || from[type.dim] == 1)) {
      // Elements that stay together: unit * (elements per index of the old dim).
      const std::int64_t together = type.unit * from.numel(type.dim + 1, from.rank());
      const std::int64_t all = type.size * from.numel(type.dim + 1, from.rank());
      const std::int64_t per_index = to.numel(dim + 1, to.rank());
      if (per_index > 0 && together % per_index == 0 && together > 0 && all % per_index == 0) {
        return AxisType::shard(dim, static_cast<int>(together / per_index), type.order)
            .of(all / per_index);
      }
      break;
    }
    seen *= to[dim];
  }
  throw Error(
      ErrorCode::kShardingType,
      fmt::format("reshape: on mesh axis {} dim {} of {} is split ({}) and would not stay a "
                  "contiguous split in {}. Gather it first (S->R), or reshape so that it stays "
                  "the outermost of its dims",
                  axis, type.dim, from.to_string(), to_string(type), to.to_string()));
}

}  // namespace

Variable reshape(const Variable& x, const Shape& shape) {
  const Tensor dense = ops::contiguous(x.value());
  Tensor value = dense.reshape(shape);
  ShardingType type = x.type();
  for (AxisId axis = 0; axis < type.count(); ++axis) {
    type[axis] = reshaped(type[axis], x.shape(), value.shape(),
                          type.axes()->axes[static_cast<std::size_t>(axis)].name);
  }
  Op op("reshape", {x}, DeclaredType{type}, OpSide::kConversion);
  op.gradient({0}, [from = x.shape()](Gradients& g) { g.add(0, g.dy().reshape(from)); });
  return op.output(std::move(value));
}

}  // namespace tessera::autograd

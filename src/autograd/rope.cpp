// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/rope.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tessera/autograd/op.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/ops/rope.hpp"

namespace tessera::autograd {
namespace {

/// Token t of the whole sequence is at t; the type says where this rank's tokens begin. The
/// positions are split as x's batch and sequence are, and whole otherwise.
Variable default_positions(const Variable& x) {
  std::int64_t first = 0;
  ShardingType type = x.type();
  for (AxisId axis = 0; axis < type.count(); ++axis) {
    const AxisType t = type[axis];
    if (t.kind == AxisKind::kVarying) {
      throw Error(ErrorCode::kShardingType,
                  fmt::format("rope: on mesh axis {} the operand is V, so that its tokens have no "
                              "known position; give positions",
                              type.axes()->axes[static_cast<std::size_t>(axis)].name));
    }
    if (t.kind == AxisKind::kShard && t.dim == 1) first = x.type().range(1, t.size).first;
    if (t.kind != AxisKind::kShard || t.dim > 1) type[axis] = AxisType::invariant();
  }
  const std::int64_t count = x.shape()[1];
  const Tensor row = Tensor::empty(x.context(), {1, count}, DType::kI32);
  for (std::int64_t t = 0; t < count; ++t) {
    row.data<std::int32_t>()[t] = static_cast<std::int32_t>(first + t);
  }
  return Variable(ops::copy(row.broadcast_to({x.shape()[0], count})), type);
}

}  // namespace

RopeTable make_rope_table(Context& context, const std::vector<double>& frequencies,
                          std::int64_t positions, DType dtype, double factor) {
  const auto pairs = static_cast<std::int64_t>(frequencies.size());
  std::vector<double> cos;
  std::vector<double> sin;
  for (std::int64_t p = 0; p < positions; ++p) {
    for (const double frequency : frequencies) {
      cos.push_back(factor * std::cos(static_cast<double>(p) * frequency));
      sin.push_back(factor * std::sin(static_cast<double>(p) * frequency));
    }
  }
  return {ops::cast(Tensor::from(context, {positions, pairs}, cos), dtype),
          ops::cast(Tensor::from(context, {positions, pairs}, sin), dtype)};
}

Variable rope(const Variable& x, const RopeTable& table, const Variable& positions) {
  TESSERA_CHECK(x.rank() == 4, "rope: x must be [B, T, H, D], not {}", x.shape().to_string());
  const Variable at = positions.defined() ? positions : default_positions(x);
  Op op("rope", {x, at},
        TypeRule()
            .input(labels_of(4))
            .input(labels_of(2))
            .result(labels_of(4))
            .linear_in(0)
            .needs_whole(3));
  op.gradient({0}, [table, at = Saved(at)](Gradients& g) {
    g.add(0, ops::rope(g.dy(), at.get(), table.cos, table.sin, ops::Rotation::kBackward));
  });
  return op.output(ops::rope(x.value(), at.value(), table.cos, table.sin));
}

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/dropout.hpp"

#include <fmt/format.h>

#include "tessera/autograd/op.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/dropout.hpp"

namespace tessera::autograd {
namespace {

/// Where the local tensor lies in the whole.
ops::GlobalWindow global_window(const Variable& x, const Context::BatchOrigin& origin) {
  const ShardingType& type = x.type();
  ops::GlobalWindow window{x.shape(), Shape::filled(x.rank(), 0)};
  for (AxisId axis = 0; axis < type.count(); ++axis) {
    const AxisType& t = type[axis];
    if (t.kind != AxisKind::kShard) continue;
    window.global_shape[t.dim] = t.size;
    window.offset[t.dim] = type.range(t.dim, t.size).first;
  }
  if (x.rank() > 0) window.offset[0] += origin.first_row;
  return window;
}

void require_known_place(const Variable& x) {
  for (AxisId axis = 0; axis < x.type().count(); ++axis) {
    const AxisKind kind = x.type()[axis].kind;
    if (kind != AxisKind::kVarying && kind != AxisKind::kPartial) continue;
    throw Error(
        ErrorCode::kShardingType,
        fmt::format("dropout: on mesh axis {} the operand is {}; its elements have no global "
                    "place, so no layout-independent mask exists. Convert it to S, R or I first",
                    x.type().axes()->axes[static_cast<std::size_t>(axis)].name,
                    to_string(x.type()[axis])));
  }
}

}  // namespace

Variable dropout(const Variable& x, double p, RandomKey site) {
  TESSERA_CHECK(p >= 0.0 && p < 1.0, "dropout: p must lie in [0, 1), not {}", p);
  if (p == 0.0) return x;
  require_known_place(x);
  Context& context = x.context();
  TESSERA_CHECK(context.checks_types() || context.world_size() == 1,
                "dropout: {} ranks but check_types is off, so the place of the elements in the "
                "global tensor is unknown; switch ContextOptions::check_types on",
                context.world_size());
  const RandomKey key = site.child(context.batch_origin().step);
  const ops::GlobalWindow window = global_window(x, context.batch_origin());
  Op op("dropout", {x}, elementwise_linear_rule(x.rank()));
  op.gradient({0},
              [p, key, window](Gradients& g) { g.add(0, ops::dropout(g.dy(), p, key, window)); });
  return op.output(ops::dropout(x.value(), p, key, window));
}

}  // namespace tessera::autograd

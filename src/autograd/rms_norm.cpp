// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/rms_norm.hpp"

#include <vector>

#include "tessera/autograd/op.hpp"
#include "tessera/ops/rms_norm.hpp"
#include "weight_sum.hpp"

namespace tessera::autograd {
namespace {

/// Adds the gradient of the weight, input `input`, of the normalised `x`.
void add_weight_gradient(Op& op, int input, const Saved& x, const Saved& rstd, int output) {
  op.gradient({input}, [input, x, rstd, output](Gradients& g) {
    const Tensor rows = x.get();
    WeightSum dweight(g, input, rows, {rows.shape().back(0)});
    ops::rms_norm_weight_backward(dweight.tensor(), g.dy(output), rows, rstd.get());
    dweight.add();
  });
}

}  // namespace

Variable rms_norm(const Variable& x, const Variable& weight, double eps) {
  const int rank = x.rank();
  TESSERA_CHECK(rank >= 1, "rms_norm: x needs at least one dim");
  const TypeRule rule = TypeRule()
                            .input(labels_of(rank))
                            .input({rank - 1})
                            .result(labels_of(rank))
                            .linear_in(1)
                            .needs_whole(rank - 1);
  Op op("rms_norm", {x, weight}, rule);
  ops::RmsNormResult result = ops::rms_norm(x.value(), Tensor(), weight.value(), eps);
  if (op.needs(0)) {
    op.gradient({0}, [x = Saved(x), w = Saved(weight), rstd = Saved(result.rstd)](Gradients& g) {
      g.add(0, ops::rms_norm_backward(g.dy(), Tensor(), x.get(), w.get(), rstd.get()));
    });
  }
  if (op.needs(1)) add_weight_gradient(op, 1, Saved(x), Saved(result.rstd), 0);
  return op.output(std::move(result.y));
}

NormedSum add_rms_norm(const Variable& x, const Variable& residual, const Variable& weight,
                       double eps) {
  const int rank = x.rank();
  TESSERA_CHECK(rank >= 1, "add_rms_norm: x needs at least one dim");
  const TypeRule rule = TypeRule()
                            .input(labels_of(rank))
                            .input(labels_of(rank))
                            .input({rank - 1})
                            .result(labels_of(rank))
                            .needs_whole(rank - 1);
  Op op("add_rms_norm", {x, residual, weight}, rule);
  const ops::RmsNormResult result = ops::rms_norm(x.value(), residual.value(), weight.value(), eps);
  if (op.needs(0) || op.needs(1)) {
    op.gradient({0, 1}, [sum = Saved(result.sum), w = Saved(weight),
                         rstd = Saved(result.rstd)](Gradients& g) {
      const Tensor dx = ops::rms_norm_backward(g.dy(1), g.dy(0), sum.get(), w.get(), rstd.get());
      g.add(0, dx);
      g.add(1, dx);
    });
  }
  if (op.needs(2)) add_weight_gradient(op, 2, Saved(result.sum), Saved(result.rstd), 1);
  const Tensor values[] = {result.sum, result.y};
  const ShardingType types[] = {op.type(), op.type()};
  const std::vector<Variable> outputs = op.outputs(values, types);
  return {outputs[0], outputs[1]};
}

}  // namespace tessera::autograd

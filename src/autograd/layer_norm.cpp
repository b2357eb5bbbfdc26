// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/layer_norm.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/ops/layer_norm.hpp"

namespace tessera::autograd {
namespace {

/// The leaf's own accumulator, zeroed when it holds nothing yet; or a fresh zero tensor.
Tensor weight_sum(Gradients& g, int input, const Tensor& like, std::int64_t width,
                  bool& is_target) {
  bool accumulates = false;
  const Tensor target = g.target(input, accumulates);
  is_target = target.defined();
  if (!is_target) return Tensor::zeros(like.context(), {width}, like.dtype());
  if (!accumulates) ops::fill(target, 0.0);
  return target;
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  const int rank = x.rank();
  TESSERA_CHECK(rank >= 1, "layer_norm: x needs at least one dim");
  const DimLabels last{rank - 1};
  Op op("layer_norm", {x, weight, bias},
        TypeRule()
            .input(labels_of(rank))
            .input(last)
            .input(last)
            .result(labels_of(rank))
            .needs_whole(rank - 1));
  ops::LayerNormResult result = ops::layer_norm(x.value(), weight.value(), bias.value(), eps);
  if (op.needs(0)) {
    op.gradient({0}, [x = Saved(x), w = Saved(weight), mean = Saved(result.mean),
                      rstd = Saved(result.rstd)](Gradients& g) {
      g.add(0, ops::layer_norm_backward(g.dy(), x.get(), w.get(), mean.get(), rstd.get()));
    });
  }
  if (op.needs(1) || op.needs(2)) {
    op.gradient(
        {1, 2}, [x = Saved(x), mean = Saved(result.mean), rstd = Saved(result.rstd)](Gradients& g) {
          const Tensor input = x.get();
          const std::int64_t width = input.shape().back(0);
          bool has_weight_target = false;
          bool has_bias_target = false;
          const Tensor dweight = weight_sum(g, 1, input, width, has_weight_target);
          const Tensor dbias = weight_sum(g, 2, input, width, has_bias_target);
          ops::layer_norm_weight_backward(dweight, dbias, g.dy(), input, mean.get(), rstd.get());
          if (!has_weight_target) g.add(1, dweight);
          if (!has_bias_target) g.add(2, dbias);
        });
  }
  return op.output(std::move(result.y));
}

}  // namespace tessera::autograd

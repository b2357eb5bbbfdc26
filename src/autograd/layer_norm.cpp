// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/layer_norm.hpp"

#include "tessera/autograd/op.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "weight_sum.hpp"

namespace tessera::autograd {
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
    op.gradient({1, 2},
                [x = Saved(x), mean = Saved(result.mean), rstd = Saved(result.rstd)](Gradients& g) {
                  const Tensor input = x.get();
                  const Shape width{input.shape().back(0)};
                  WeightSum dweight(g, 1, input, width);
                  WeightSum dbias(g, 2, input, width);
                  ops::layer_norm_weight_backward(dweight.tensor(), dbias.tensor(), g.dy(), input,
                                                  mean.get(), rstd.get());
                  dweight.add();
                  dbias.add();
                });
  }
  return op.output(std::move(result.y));
}

}  // namespace tessera::autograd

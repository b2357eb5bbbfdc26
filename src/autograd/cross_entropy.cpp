// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/cross_entropy.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/autograd/op.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/add.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/ops/matmul.hpp"
#include "tessera/ops/scale.hpp"
#include "typed.hpp"

namespace tessera::autograd {

namespace {

TypeRule token_loss_rule(int token_rank) {
  return TypeRule()
      .input(labels_of(token_rank + 1))
      .input(labels_of(token_rank))
      .result(DimLabels{})
      .needs_whole(token_rank);
}

}  // namespace

Variable cross_entropy(const Variable& logits, const Variable& targets,
                       const ops::CrossEntropyOptions& options) {
  const int rank = targets.rank();
  Op op("cross_entropy", {logits, targets}, token_loss_rule(rank));
  ops::CrossEntropyResult result = ops::cross_entropy(logits.value(), targets.value(), options);
  if (op.needs(0)) {
    op.gradient({0}, [logits = Saved(logits), targets = Saved(targets), lse = Saved(result.lse),
                      options](Gradients& g) {
      g.add(0, ops::cross_entropy_backward(g.dy().item(), logits.get(), targets.get(), lse.get(),
                                           options));
    });
  }
  return op.output(std::move(result.sum));
}

namespace {

constexpr std::int64_t kChunkLogits = 1 << 24;  ///< 64 MiB in f32

/// The type of the loss: that of the product, then of the loss of logits.
ShardingType head_type(const Variable& x, const Variable& w, const Variable& targets) {
  if (!x.context().checks_types()) return {};
  constexpr const char* kOp = "linear_cross_entropy";
  const Variable factors[] = {x, w};
  const ShardingType logits = infer_type(kOp, factors, product_rule(x.rank() - 1, 1, 1));
  const bool takes_gradient = x.takes_gradient() || w.takes_gradient();
  const Variable operands[] = {typed_operand(x, logits, takes_gradient), targets};
  return infer_type(kOp, operands, token_loss_rule(targets.rank()));
}

/// Checks shapes; pieces that do not fit are most often a split of one operand only, and the types
/// tell.
ShardingType checked_head_type(const Variable& x, const Variable& w, const Variable& targets) {
  const bool has_dims = w.rank() == 2 && x.rank() == targets.rank() + 1;
  const ShardingType type = has_dims ? head_type(x, w, targets) : ShardingType();
  if (has_dims && x.shape().back(0) == w.shape()[1] &&
      x.shape().slice(0, x.rank() - 1) == targets.shape()) {
    return type;
  }
  throw Error(
      ErrorCode::kShape,
      fmt::format("linear_cross_entropy: x [..., C], w [V, C] and targets [...] do not "
                  "agree: {}, {} and {}",
                  x.shape().to_string(), w.shape().to_string(), targets.shape().to_string()));
}

/// The loss, and its gradients where they are wanted.
struct Head {
  Tensor sum;
  Tensor dx;  ///< [N, C], or undefined
  Tensor dw;  ///< [V, C], or undefined

  Head(const Tensor& x, const Tensor& w, const Tensor& targets,
       const ops::CrossEntropyOptions& options, bool wants_dx, bool wants_dw);
};

Head::Head(const Tensor& x, const Tensor& w, const Tensor& targets,
           const ops::CrossEntropyOptions& options, bool wants_dx, bool wants_dw) {
  Context& context = x.context();
  const std::int64_t tokens = targets.numel();
  const std::int64_t vocabulary = w.shape()[0];
  const Shape flat{tokens, x.shape().back(0)};
  const Tensor rows = ops::contiguous(x).reshape(flat);
  const Tensor labels = ops::contiguous(targets).reshape({tokens});
  const Tensor weight = ops::contiguous(w);
  sum = Tensor::zeros(context, {}, DType::kF64);
  if (wants_dx) dx = Tensor::empty(context, flat, x.dtype());
  if (wants_dw) {
    dw = Tensor::empty(context, w.shape(), w.dtype(), MemoryCategory::kGradient);
    if (tokens == 0) ops::fill(dw, 0.0);
  }
  const std::int64_t chunk = std::min(
      tokens, std::max<std::int64_t>(1, kChunkLogits / std::max<std::int64_t>(1, vocabulary)));
  const Tensor buffer =
      Tensor::empty(context, {chunk, vocabulary}, x.dtype(), MemoryCategory::kWorkspace);
  for (std::int64_t first = 0; first < tokens; first += chunk) {
    const std::int64_t count = std::min(chunk, tokens - first);
    const Tensor logits = buffer.narrow(0, 0, count);
    const Tensor some = rows.narrow(0, first, count);
    const Tensor next = labels.narrow(0, first, count);
    ops::matmul_into(logits, some, weight, ops::Transpose::kNo, ops::Transpose::kYes, false);
    const ops::CrossEntropyResult loss = ops::cross_entropy(logits, next, options);
    ops::axpy(sum, loss.sum);
    if (!wants_dx && !wants_dw) continue;
    ops::cross_entropy_backward_(1.0, logits, next, loss.lse, options);
    if (wants_dx) {
      ops::matmul_into(dx.narrow(0, first, count), logits, weight, ops::Transpose::kNo,
                       ops::Transpose::kNo, false);
    }
    if (wants_dw) {
      ops::matmul_into(dw, logits, some, ops::Transpose::kYes, ops::Transpose::kNo, first > 0);
    }
  }
}

/// factor times what a closure holds, given away by the last run.
Tensor scaled(Tensor& held, double factor, bool is_last) {
  if (!is_last) return ops::scale(held, factor);
  if (factor != 1.0) ops::scale_(held, factor);
  return std::move(held);
}

}  // namespace

Variable linear_cross_entropy(const Variable& x, const Variable& w, const Variable& targets,
                              const ops::CrossEntropyOptions& options) {
  Op op("linear_cross_entropy", {x, w, targets}, DeclaredType{checked_head_type(x, w, targets)});
  Head head(x.value(), w.value(), targets.value(), options, op.needs(0), op.needs(1));
  op.gradient({0}, [dx = head.dx, shape = x.shape()](Gradients& g) mutable {
    g.add(0, scaled(dx, g.dy().item(), g.is_last_run()).reshape(shape));
  });
  op.gradient({1}, [dw = std::move(head.dw)](Gradients& g) mutable {
    g.add(1, scaled(dw, g.dy().item(), g.is_last_run()));
  });
  return op.output(std::move(head.sum));
}

}  // namespace tessera::autograd

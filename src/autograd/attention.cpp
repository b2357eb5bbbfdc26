// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/attention.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tessera/autograd/op.hpp"

namespace tessera::autograd {
namespace {

double scale_or_default(double scale, std::int64_t head_size) {
  return scale != 0.0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_size));
}

void require_rank(const Variable& x, int rank, const char* what) {
  if (x.rank() != rank) {
    throw Error(ErrorCode::kShape,
                fmt::format("attention: {}, not {}", what, x.shape().to_string()));
  }
}

/// Labels: 0 B, 1 T, 2 heads (H and G are cut together), 3 D, 4 S.
TypeRule head_rule(const Shape& q, const Shape& k, const Shape& v, ops::AttentionMask mask) {
  TypeRule rule = TypeRule()
                      .input({0, 1, 2, 3})
                      .input({0, 4, 2, 3})
                      .input({0, 4, 2, 3})
                      .result({0, 1, 2, 3})
                      .linear_in(2)
                      .needs_whole(3)
                      .needs_whole(4);
  if (mask == ops::AttentionMask::kCausal) rule.needs_whole(1);  // positions count
  if (k[2] > 0 && q[2] >= k[2] && q[2] % k[2] == 0) rule.grouped_in(0, 2, q[2] / k[2]);
  // One key head serves every query.
  if (k[2] == 1) rule.singles[1] = 1U << 2;
  if (v[2] == 1) rule.singles[2] = 1U << 2;
  return rule;
}

}  // namespace

Variable attention(const Variable& q, const Variable& k, const Variable& v, ops::AttentionMask mask,
                   double scale) {
  require_rank(q, 4, "q must be [B, T, H, D]");
  require_rank(k, 4, "k must be [B, S, G, D]");
  require_rank(v, 4, "v must be [B, S, G, D]");
  const double factor = scale_or_default(scale, q.shape()[3]);
  Op op("attention", {q, k, v}, head_rule(q.shape(), k.shape(), v.shape(), mask));
  ops::AttentionResult result = ops::attention(q.value(), k.value(), v.value(), mask, factor);
  if (op.records()) {
    op.gradient({0, 1, 2}, [q = Saved(q), k = Saved(k), v = Saved(v), out = Saved(result.out),
                            lse = Saved(result.lse), mask, factor](Gradients& g) {
      const Tensor q_value = q.get();
      const Tensor k_value = k.get();
      Context& context = q_value.context();
      const Tensor dq = Tensor::empty(context, q_value.shape(), q_value.dtype());
      const Tensor dk = Tensor::empty(context, k_value.shape(), k_value.dtype());
      const Tensor dv = Tensor::empty(context, k_value.shape(), k_value.dtype());
      ops::attention_backward(dq, dk, dv, g.dy(), q_value, k_value, v.get(), out.get(), lse.get(),
                              mask, factor);
      g.add(0, dq);
      g.add(1, dk);
      g.add(2, dv);
    });
  }
  return op.output(std::move(result.out));
}

Variable attention(const Variable& qkv, ops::AttentionMask mask, double scale) {
  require_rank(qkv, 5, "qkv must be [B, T, 3, H, D]");
  const double factor = scale_or_default(scale, qkv.shape()[4]);
  // Labels: 0 B, 1 T, 2 heads, 3 D, 4 the packing.
  Op op("attention", {qkv},
        TypeRule()
            .input({0, 1, 4, 2, 3})
            .result({0, 1, 2, 3})
            .needs_whole(1)
            .needs_whole(3)
            .needs_whole(4));
  TESSERA_CHECK(qkv.shape()[2] == 3, "attention: qkv must be [B, T, 3, H, D], not {}",
                qkv.shape().to_string());
  const auto part = [](const Tensor& packed, int which) { return packed.select(2, which); };
  const Tensor& packed = qkv.value();
  ops::AttentionResult result =
      ops::attention(part(packed, 0), part(packed, 1), part(packed, 2), mask, factor);
  if (op.records()) {
    op.gradient({0}, [qkv = Saved(qkv), out = Saved(result.out), lse = Saved(result.lse), mask,
                      factor, part](Gradients& g) {
      const Tensor x = qkv.get();
      const Tensor dx = Tensor::empty(x.context(), x.shape(), x.dtype());
      ops::attention_backward(part(dx, 0), part(dx, 1), part(dx, 2), g.dy(), part(x, 0), part(x, 1),
                              part(x, 2), out.get(), lse.get(), mask, factor);
      g.add(0, dx);
    });
  }
  return op.output(std::move(result.out));
}

}  // namespace tessera::autograd

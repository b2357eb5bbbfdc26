// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/gated_activation.hpp"

#include "check.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

/// [..., F] of a packed [..., 2, F].
Shape gated_shape(const char* op, const Tensor& x) {
  if (x.rank() < 2 || x.shape().back(1) != 2) {
    throw Error(ErrorCode::kShape, fmt::format("{}: x must be [..., 2, F] (gate, up), not {}", op,
                                               x.shape().to_string()));
  }
  Shape shape = x.shape().slice(0, x.rank() - 2);
  shape.push_back(x.shape().back(0));
  return shape;
}

/// [rows, 2, F].
Shape packed_rows(const Tensor& x) {
  const std::int64_t width = x.shape().back(0);
  return {x.numel() / (2 * width), 2, width};
}

}  // namespace

Tensor gated_activation(const Tensor& x, Activation kind) {
  Tensor y = Tensor::empty(x.context(), gated_shape("gated_activation", x), x.dtype());
  if (x.numel() == 0) return y;
  const Shape rows = packed_rows(x);
  const Tensor packed = contiguous(x).reshape(rows);
  const GatedActivationArgs args{packed.view(), y.reshape({rows[0], rows[2]}).view(), kind};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { gated_activation_kernel<D>(args, stream); });
  return y;
}

Tensor gated_activation_backward(const Tensor& x, const Tensor& dy, Activation kind) {
  constexpr const char* kOp = "gated_activation_backward";
  require_shape(kOp, "dy", dy, gated_shape(kOp, x));
  require_dtype(kOp, "dy", dy, x.dtype());
  Tensor dx = Tensor::empty(x.context(), x.shape(), x.dtype());
  if (x.numel() == 0) return dx;
  const Shape rows = packed_rows(x);
  const Tensor packed = contiguous(x).reshape(rows);
  const Tensor gradient = contiguous(dy).reshape({rows[0], rows[2]});
  const GatedActivationBackwardArgs args{packed.view(), gradient.view(), dx.reshape(rows).view(),
                                         kind};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { gated_activation_backward_kernel<D>(args, stream); });
  return dx;
}

}  // namespace tessera::ops

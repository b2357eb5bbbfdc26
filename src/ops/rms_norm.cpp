// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/rms_norm.hpp"

#include "check.hpp"
#include "rows.hpp"
#include "tessera/core/context.hpp"

namespace tessera::ops {
namespace {

/// Checks x and its weight.
void require_operands(const char* op, const Tensor& x, const Tensor& weight) {
  if (x.rank() < 1 || x.shape().back(0) == 0) {
    throw Error(ErrorCode::kShape, fmt::format("{}: the last dim of x must not be empty, x is {}",
                                               op, x.shape().to_string()));
  }
  require_shape(op, "weight", weight, {x.shape().back(0)});
  require_dtype(op, "weight", weight, x.dtype());
}

/// What both halves of the backward pass ask of their operands.
void require_backward(const char* op, const Tensor& dy, const Tensor& x, const Tensor& rstd) {
  require_shape(op, "dy", dy, x.shape());
  require_dtype(op, "dy", dy, x.dtype());
  require_shape(op, "rstd", rstd, x.shape().slice(0, x.rank() - 1));
  require_dtype(op, "rstd", rstd, statistics_dtype(x.dtype()));
}

}  // namespace

RmsNormResult rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps) {
  require_operands("rms_norm", x, weight);
  const bool has_residual = residual.defined();
  if (has_residual) {
    require_shape("rms_norm", "residual", residual, x.shape());
    require_dtype("rms_norm", "residual", residual, x.dtype());
  }
  Context& context = x.context();
  RmsNormResult result{
      Tensor::empty(context, x.shape(), x.dtype()),
      Tensor::empty(context, x.shape().slice(0, x.rank() - 1), statistics_dtype(x.dtype())),
      has_residual ? Tensor::empty(context, x.shape(), x.dtype()) : Tensor()};
  if (x.numel() == 0) return result;
  const Tensor rows = rows_of(x);
  const Tensor w = contiguous(weight);
  const Tensor added = has_residual ? rows_of(residual) : Tensor();
  RmsNormArgs args;
  args.x = rows.view();
  args.weight = w.view();
  args.y = result.y.reshape(rows.shape()).view();
  args.rstd = result.rstd.view();
  args.eps = eps;
  if (has_residual) {
    args.residual = added.view();
    args.sum = result.sum.reshape(rows.shape()).view();
  }
  on_device(x.device(), [&]<DeviceType D>() { rms_norm_kernel<D>(args, context.stream()); });
  return result;
}

Tensor rms_norm_backward(const Tensor& dy, const Tensor& dsum, const Tensor& x,
                         const Tensor& weight, const Tensor& rstd) {
  constexpr const char* kOp = "rms_norm_backward";
  require_operands(kOp, x, weight);
  require_backward(kOp, dy, x, rstd);
  Context& context = x.context();
  Tensor dx = Tensor::empty(context, x.shape(), x.dtype());
  if (dsum.defined()) {
    require_shape(kOp, "dsum", dsum, x.shape());
    require_dtype(kOp, "dsum", dsum, x.dtype());
  }
  if (x.numel() == 0) return dx;
  const Tensor rows = rows_of(x);
  const Tensor gradient = rows_of(dy);
  const Tensor w = contiguous(weight);
  const Tensor rstds = contiguous(rstd);
  const Tensor added = dsum.defined() ? rows_of(dsum) : Tensor();
  RmsNormBackwardArgs args;
  args.x = rows.view();
  args.weight = w.view();
  args.rstd = rstds.view();
  args.dy = gradient.view();
  if (added.defined()) args.dsum = added.view();
  args.dx = dx.reshape(rows.shape()).view();
  on_device(x.device(),
            [&]<DeviceType D>() { rms_norm_backward_kernel<D>(args, context.stream()); });
  return dx;
}

void rms_norm_weight_backward(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                              const Tensor& rstd) {
  constexpr const char* kOp = "rms_norm_weight_backward";
  require_operands(kOp, x, dweight);
  require_backward(kOp, dy, x, rstd);
  require_contiguous(kOp, "dweight", dweight);
  if (x.numel() > 0) {
    const Tensor rows = rows_of(x);
    const Tensor gradient = rows_of(dy);
    const Tensor rstds = contiguous(rstd);
    const RmsNormWeightBackwardArgs args{rows.view(), rstds.view(), gradient.view(),
                                         dweight.view()};
    Stream& stream = x.context().stream();
    on_device(x.device(),
              [&]<DeviceType D>() { rms_norm_weight_backward_kernel<D>(args, stream); });
  }
  dweight.mark_changed();
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/layer_norm.hpp"

#include <fmt/format.h>

#include "check.hpp"
#include "rows.hpp"
#include "tessera/core/context.hpp"

namespace tessera::ops {
namespace {

void require(bool ok, const std::string& message) {
  if (!ok) throw Error(ErrorCode::kShape, message);
}

/// What both halves of the backward pass ask of their operands.
void require_backward(const char* op, const Tensor& dy, const Tensor& x, const Tensor& mean,
                      const Tensor& rstd) {
  require(x.rank() >= 1, fmt::format("{}: x has no dims", op));
  const Shape lead = x.shape().slice(0, x.rank() - 1);
  require_shape(op, "dy", dy, x.shape());
  require_shape(op, "mean", mean, lead);
  require_shape(op, "rstd", rstd, lead);
  require_dtype(op, "dy", dy, x.dtype());
  require_dtype(op, "mean", mean, statistics_dtype(x.dtype()));
  require_dtype(op, "rstd", rstd, statistics_dtype(x.dtype()));
}

}  // namespace

LayerNormResult layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  require(x.rank() >= 1 && x.shape().back(0) > 0,
          fmt::format("layer_norm: the last dim of x must not be empty, x is {}",
                      x.shape().to_string()));
  const Shape width{x.shape().back(0)};
  require(weight.shape() == width && bias.shape() == width,
          fmt::format("layer_norm: x {} needs weight and bias of shape {}, got {} and {}",
                      x.shape().to_string(), width.to_string(), weight.shape().to_string(),
                      bias.shape().to_string()));
  if (weight.dtype() != x.dtype() || bias.dtype() != x.dtype()) {
    throw Error(ErrorCode::kDType,
                fmt::format("layer_norm: x is {}, weight {}, bias {}", to_string(x.dtype()),
                            to_string(weight.dtype()), to_string(bias.dtype())));
  }
  Context& context = x.context();
  const Shape lead = x.shape().slice(0, x.rank() - 1);
  LayerNormResult result{Tensor::empty(context, x.shape(), x.dtype()),
                         Tensor::empty(context, lead, statistics_dtype(x.dtype())),
                         Tensor::empty(context, lead, statistics_dtype(x.dtype()))};
  if (x.numel() == 0) return result;
  const Tensor rows = rows_of(x);
  const Tensor w = contiguous(weight);
  const Tensor b = contiguous(bias);
  const LayerNormArgs args{
      rows.view(),        w.view(),           b.view(), result.y.reshape(rows.shape()).view(),
      result.mean.view(), result.rstd.view(), eps};
  on_device(x.device(), [&]<DeviceType D>() { layer_norm_kernel<D>(args, context.stream()); });
  return result;
}

Tensor layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                           const Tensor& mean, const Tensor& rstd) {
  require_backward("layer_norm_backward", dy, x, mean, rstd);
  require_shape("layer_norm_backward", "weight", weight, {x.shape().back(0)});
  require_dtype("layer_norm_backward", "weight", weight, x.dtype());
  Context& context = x.context();
  Tensor dx = Tensor::empty(context, x.shape(), x.dtype());
  if (x.numel() == 0) return dx;
  const Tensor rows = rows_of(x);
  const Tensor gradient = rows_of(dy);
  const Tensor w = contiguous(weight);
  const Tensor means = contiguous(mean);
  const Tensor rstds = contiguous(rstd);
  const LayerNormBackwardArgs args{rows.view(),  w.view(),        means.view(),
                                   rstds.view(), gradient.view(), dx.reshape(rows.shape()).view()};
  on_device(x.device(),
            [&]<DeviceType D>() { layer_norm_backward_kernel<D>(args, context.stream()); });
  return dx;
}

void layer_norm_weight_backward(const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                                const Tensor& x, const Tensor& mean, const Tensor& rstd) {
  constexpr const char* kOp = "layer_norm_weight_backward";
  require_backward(kOp, dy, x, mean, rstd);
  const Shape width{x.shape().back(0)};
  require_shape(kOp, "dweight", dweight, width);
  require_shape(kOp, "dbias", dbias, width);
  require_dtype(kOp, "dweight", dweight, x.dtype());
  require_dtype(kOp, "dbias", dbias, x.dtype());
  require_contiguous(kOp, "dweight", dweight);
  require_contiguous(kOp, "dbias", dbias);
  if (x.numel() > 0) {
    const Tensor rows = rows_of(x);
    const Tensor gradient = rows_of(dy);
    const Tensor means = contiguous(mean);
    const Tensor rstds = contiguous(rstd);
    const LayerNormWeightBackwardArgs args{rows.view(),     means.view(),   rstds.view(),
                                           gradient.view(), dweight.view(), dbias.view()};
    Stream& stream = x.context().stream();
    on_device(x.device(),
              [&]<DeviceType D>() { layer_norm_weight_backward_kernel<D>(args, stream); });
  }
  dweight.mark_changed();
  dbias.mark_changed();
}

}  // namespace tessera::ops

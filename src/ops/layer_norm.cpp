// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/layer_norm.hpp"

#include <fmt/format.h>

#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

void require(bool ok, const std::string& message) {
  if (!ok) throw Error(ErrorCode::kShape, message);
}

Tensor rows_of(const Tensor& x) {
  const std::int64_t width = x.shape().back(0);
  return contiguous(x).reshape({width == 0 ? 0 : x.numel() / width, width});
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
                         Tensor::empty(context, lead, x.dtype()),
                         Tensor::empty(context, lead, x.dtype())};
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
  require(dy.shape() == x.shape(), fmt::format("layer_norm_backward: x is {} but dy {}",
                                               x.shape().to_string(), dy.shape().to_string()));
  Context& context = x.context();
  Tensor dx = Tensor::empty(context, x.shape(), x.dtype());
  if (x.numel() == 0) return dx;
  const Tensor rows = rows_of(x);
  const Tensor gradient = rows_of(dy);
  const Tensor w = contiguous(weight);
  const LayerNormBackwardArgs args{rows.view(), w.view(),        mean.view(),
                                   rstd.view(), gradient.view(), dx.reshape(rows.shape()).view()};
  on_device(x.device(),
            [&]<DeviceType D>() { layer_norm_backward_kernel<D>(args, context.stream()); });
  return dx;
}

void layer_norm_weight_backward(const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                                const Tensor& x, const Tensor& mean, const Tensor& rstd) {
  require(dy.shape() == x.shape(), fmt::format("layer_norm_weight_backward: x is {} but dy {}",
                                               x.shape().to_string(), dy.shape().to_string()));
  const Shape width{x.shape().back(0)};
  require(
      dweight.shape() == width && dbias.shape() == width && dweight.is_contiguous() &&
          dbias.is_contiguous(),
      fmt::format("layer_norm_weight_backward: dweight and dbias must be contiguous and {}, not "
                  "{} and {}",
                  width.to_string(), dweight.shape().to_string(), dbias.shape().to_string()));
  if (x.numel() > 0) {
    const Tensor rows = rows_of(x);
    const Tensor gradient = rows_of(dy);
    const LayerNormWeightBackwardArgs args{rows.view(),     mean.view(),    rstd.view(),
                                           gradient.view(), dweight.view(), dbias.view()};
    Stream& stream = x.context().stream();
    on_device(x.device(),
              [&]<DeviceType D>() { layer_norm_weight_backward_kernel<D>(args, stream); });
  }
  dweight.mark_changed();
  dbias.mark_changed();
}

}  // namespace tessera::ops

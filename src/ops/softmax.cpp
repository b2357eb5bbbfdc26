// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/softmax.hpp"

#include "check.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

Shape rows_shape(const Tensor& x) {
  const std::int64_t width = x.shape().back(0);
  return {x.numel() / width, width};
}

}  // namespace

Tensor softmax(const Tensor& x) {
  if (x.rank() < 1) throw Error(ErrorCode::kShape, "softmax: x is a scalar; it needs a last dim");
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  if (x.numel() == 0) return y;
  const Shape rows = rows_shape(x);
  const Tensor dense = contiguous(x);
  const SoftmaxArgs args{dense.reshape(rows).view(), y.reshape(rows).view()};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { softmax_kernel<D>(args, stream); });
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& dy) {
  require_shape("softmax_backward", "dy", dy, y.shape());
  require_dtype("softmax_backward", "dy", dy, y.dtype());
  Tensor dx = Tensor::empty(y.context(), y.shape(), y.dtype());
  if (y.numel() == 0) return dx;
  const Shape rows = rows_shape(y);
  const Tensor values = contiguous(y);
  const Tensor gradient = contiguous(dy);
  const SoftmaxBackwardArgs args{values.reshape(rows).view(), gradient.reshape(rows).view(),
                                 dx.reshape(rows).view()};
  Stream& stream = y.context().stream();
  on_device(y.device(), [&]<DeviceType D>() { softmax_backward_kernel<D>(args, stream); });
  return dx;
}

}  // namespace tessera::ops

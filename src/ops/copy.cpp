// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/copy.hpp"

#include <fmt/format.h>

#include "tessera/core/context.hpp"

namespace tessera::ops {

void copy_into(const Tensor& y, const Tensor& x) {
  if (y.shape() != x.shape()) {
    throw Error(ErrorCode::kShape, fmt::format("copy: the target is {} but the source {}",
                                               y.shape().to_string(), x.shape().to_string()));
  }
  if (x.numel() > 0) {
    const CopyArgs args{x.view(), y.view()};
    Stream& stream = y.context().stream();
    on_device(y.device(), [&]<DeviceType D>() { copy_kernel<D>(args, stream); });
  }
  y.mark_changed();
}

Tensor copy(const Tensor& x) {
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  copy_into(y, x);
  return y;
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : copy(x); }

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = Tensor::empty(x.context(), x.shape(), dtype);
  copy_into(y, x);
  return y;
}

void fill(const Tensor& y, double value) {
  if (y.numel() > 0) {
    const FillArgs args{y.view(), value};
    Stream& stream = y.context().stream();
    on_device(y.device(), [&]<DeviceType D>() { fill_kernel<D>(args, stream); });
  }
  y.mark_changed();
}

}  // namespace tessera::ops

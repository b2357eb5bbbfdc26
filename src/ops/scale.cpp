// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/scale.hpp"

#include "check.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

void run(const Tensor& x, const Tensor& y, double factor) {
  if (x.numel() == 0) return;
  const ScaleArgs args{x.view(), y.view(), factor};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { scale_kernel<D>(args, stream); });
}

}  // namespace

Tensor scale(const Tensor& x, double factor) {
  const Tensor dense = contiguous(x);
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  run(dense, y, factor);
  return y;
}

void scale_(const Tensor& x, double factor) {
  require_contiguous("scale_", "x", x);
  run(x, x, factor);
  x.mark_changed();
}

}  // namespace tessera::ops

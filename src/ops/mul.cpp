// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/mul.hpp"

#include "check.hpp"
#include "tessera/core/context.hpp"

namespace tessera::ops {

Tensor mul(const Tensor& a, const Tensor& b) {
  require_dtype("mul", "b", b, a.dtype());
  const Shape shape = broadcast_shapes(a.shape(), b.shape());
  Tensor y = Tensor::empty(a.context(), shape, a.dtype());
  if (y.numel() == 0) return y;
  const MulArgs args{a.broadcast_to(shape).view(), b.broadcast_to(shape).view(), y.view()};
  Stream& stream = y.context().stream();
  on_device(y.device(), [&]<DeviceType D>() { mul_kernel<D>(args, stream); });
  return y;
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/gelu.hpp"

#include "check.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {

Tensor gelu(const Tensor& x) {
  const Tensor dense = contiguous(x);
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  if (x.numel() == 0) return y;
  const GeluArgs args{dense.view(), y.view()};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { gelu_kernel<D>(args, stream); });
  return y;
}

Tensor gelu_backward(const Tensor& x, const Tensor& dy) {
  require_shape("gelu_backward", "dy", dy, x.shape());
  require_dtype("gelu_backward", "dy", dy, x.dtype());
  const Tensor input = contiguous(x);
  const Tensor gradient = contiguous(dy);
  Tensor dx = Tensor::empty(x.context(), x.shape(), x.dtype());
  if (x.numel() == 0) return dx;
  const GeluBackwardArgs args{input.view(), gradient.view(), dx.view()};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { gelu_backward_kernel<D>(args, stream); });
  return dx;
}

}  // namespace tessera::ops

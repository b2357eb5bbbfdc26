// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/activation.hpp"

#include "check.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {

Tensor activation(const Tensor& x, Activation kind) {
  const Tensor dense = contiguous(x);
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  if (x.numel() == 0) return y;
  const ActivationArgs args{dense.view(), y.view(), kind};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { activation_kernel<D>(args, stream); });
  return y;
}

Tensor activation_backward(const Tensor& x, const Tensor& dy, Activation kind) {
  require_shape("activation_backward", "dy", dy, x.shape());
  require_dtype("activation_backward", "dy", dy, x.dtype());
  const Tensor input = contiguous(x);
  const Tensor gradient = contiguous(dy);
  Tensor dx = Tensor::empty(x.context(), x.shape(), x.dtype());
  if (x.numel() == 0) return dx;
  const ActivationBackwardArgs args{input.view(), gradient.view(), dx.view(), kind};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { activation_backward_kernel<D>(args, stream); });
  return dx;
}

}  // namespace tessera::ops

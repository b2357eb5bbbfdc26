// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/add.hpp"

#include <fmt/format.h>

#include "check.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

void require_same_float(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !is_floating(a.dtype())) {
    throw Error(ErrorCode::kDType, fmt::format("add: expected one floating dtype, got {} and {}",
                                               to_string(a.dtype()), to_string(b.dtype())));
  }
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  require_same_float(a, b);
  Tensor y = Tensor::empty(a.context(), broadcast_shapes(a.shape(), b.shape()), a.dtype());
  add_into(y, a, b);
  return y;
}

void add_into(const Tensor& y, const Tensor& a, const Tensor& b) {
  require_same_float(a, b);
  const Shape shape = broadcast_shapes(a.shape(), b.shape());
  if (y.shape() != shape || y.dtype() != a.dtype() || !y.is_contiguous()) {
    throw Error(ErrorCode::kShape,
                fmt::format("add: the target must be a contiguous {} of {}, not {} of {}",
                            to_string(a.dtype()), shape.to_string(), to_string(y.dtype()),
                            y.shape().to_string()));
  }
  if (y.numel() > 0) {
    const AddArgs args{a.broadcast_to(shape).view(), b.broadcast_to(shape).view(), y.view()};
    Stream& stream = y.context().stream();
    on_device(y.device(), [&]<DeviceType D>() { add_kernel<D>(args, stream); });
  }
  y.mark_changed();
}

void axpy(const Tensor& y, const Tensor& x, double alpha) {
  require_shape("axpy", "x", x, y.shape());
  require_contiguous("axpy", "y", y);
  if (y.numel() > 0) {
    const Tensor dense = contiguous(x);
    const AxpyArgs args{dense.view(), y.view(), alpha};
    Stream& stream = y.context().stream();
    on_device(y.device(), [&]<DeviceType D>() { axpy_kernel<D>(args, stream); });
  }
  y.mark_changed();
}

}  // namespace tessera::ops

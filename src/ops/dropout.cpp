// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/dropout.hpp"

#include <fmt/format.h>

#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {

Tensor dropout(const Tensor& x, double p, RandomKey key, const GlobalWindow& window) {
  TESSERA_CHECK(p >= 0.0 && p < 1.0, "dropout: p must lie in [0, 1), not {}", p);
  if (window.global_shape.rank() != x.rank() || window.offset.rank() != x.rank()) {
    throw Error(ErrorCode::kShape, fmt::format("dropout: the global window has {} dims but x is {}",
                                               window.global_shape.rank(), x.shape().to_string()));
  }
  for (int d = 0; d < x.rank(); ++d) {
    const std::int64_t first = window.offset[d];
    // The size of dim 0 is not in the index: the micro-batches of a step count on beyond it.
    if (first < 0 || (d > 0 && x.shape()[d] > window.global_shape[d] - first)) {
      throw Error(ErrorCode::kShape,
                  fmt::format("dropout: x {} at offset {} leaves the global shape {} in dim {}",
                              x.shape().to_string(), window.offset.to_string(),
                              window.global_shape.to_string(), d));
    }
  }
  if (p == 0.0) return copy(x);
  const Tensor dense = contiguous(x);
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  if (x.numel() == 0) return y;
  const DropoutArgs args{dense.view(), y.view(), window, key, p};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { dropout_kernel<D>(args, stream); });
  return y;
}

}  // namespace tessera::ops

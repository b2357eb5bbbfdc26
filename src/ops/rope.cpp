// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/rope.hpp"

#include "check.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

void require_positions(const Tensor& positions, std::int64_t count) {
  const auto* values = positions.data<std::int32_t>();
  for (std::int64_t i = 0; i < positions.numel(); ++i) {
    TESSERA_CHECK(values[i] >= 0 && values[i] < count,
                  "rope: position {} of token {} is outside the table of {} positions", values[i],
                  i, count);
  }
}

}  // namespace

Tensor rope(const Tensor& x, const Tensor& positions, const Tensor& cos, const Tensor& sin,
            Rotation rotation) {
  if (x.rank() != 4 || x.shape()[3] % 2 != 0) {
    throw Error(ErrorCode::kShape, fmt::format("rope: x must be [B, T, H, D] with D even, not {}",
                                               x.shape().to_string()));
  }
  require_shape("rope", "positions", positions, x.shape().slice(0, 2));
  require_dtype("rope", "positions", positions, DType::kI32);
  const DType table = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const std::int64_t count = cos.rank() == 2 ? cos.shape()[0] : 0;
  for (const Tensor* part : {&cos, &sin}) {
    require_shape("rope", part == &cos ? "cos" : "sin", *part, {count, x.shape()[3] / 2});
    require_dtype("rope", part == &cos ? "cos" : "sin", *part, table);
  }
  Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  if (x.numel() == 0) return y;
  const Tensor rows = x.strides()[3] == 1 ? x : contiguous(x);
  const Tensor at = contiguous(positions);
  require_positions(at, count);
  const Tensor cosines = contiguous(cos);
  const Tensor sines = contiguous(sin);
  const RopeArgs args{rows.view(), at.view(), cosines.view(), sines.view(), y.view(), rotation};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { rope_kernel<D>(args, stream); });
  return y;
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
#include "tessera/spmd/placement.hpp"

#include <fmt/format.h>

#include "tessera/core/error.hpp"
#include "tessera/core/low_precision.hpp"

namespace tessera::spmd {
namespace {

template <typename T>
void fill_rows(const Tensor& local, const Placement& placement, RandomKey key, double std) {
  const Shape offset = placement.local_offset();
  const Shape strides = contiguous_strides(placement.global_shape);
  T* out = local.data<T>();
  Shape index = Shape::filled(local.rank(), 0);
  for (std::int64_t i = 0; i < local.numel(); ++i) {
    std::int64_t global = 0;
    for (int d = 0; d < local.rank(); ++d) global += (index[d] + offset[d]) * strides[d];
    out[i] = T(static_cast<float>(std * random_normal(key, static_cast<std::uint64_t>(global))));
    if constexpr (std::is_same_v<T, double>) {
      out[i] = std * random_normal(key, static_cast<std::uint64_t>(global));
    }
    for (int d = local.rank() - 1; d >= 0; --d) {
      if (++index[d] < local.shape()[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace

Shape Placement::local_shape() const {
  Shape shape = global_shape;
  for (int d = 0; d < shape.rank(); ++d) shape[d] = range(d).size;
  return shape;
}

Shape Placement::local_offset() const {
  Shape offset = global_shape;
  for (int d = 0; d < offset.rank(); ++d) offset[d] = range(d).first;
  return offset;
}

bool Placement::is_owner() const {
  for (AxisId axis = 0; axis < type.count(); ++axis) {
    if (type[axis].kind == AxisKind::kShard) continue;
    if (type.axes()->axes[static_cast<std::size_t>(axis)].coordinate != 0) return false;
  }
  return true;
}

void fill_normal(const Tensor& local, const Placement& placement, RandomKey key, double std) {
  TESSERA_CHECK(local.shape() == placement.local_shape() && local.is_contiguous(),
                "fill_normal: the tensor is {} but the placement's local shape {}",
                local.shape().to_string(), placement.local_shape().to_string());
  switch (local.dtype()) {
    case DType::kF64:
      return fill_rows<double>(local, placement, key, std);
    case DType::kF32:
      return fill_rows<float>(local, placement, key, std);
    case DType::kF16:
      return fill_rows<f16>(local, placement, key, std);
    case DType::kBF16:
      return fill_rows<bf16>(local, placement, key, std);
    default:
      throw Error(ErrorCode::kDType, fmt::format("fill_normal: {} cannot hold normal numbers",
                                                 to_string(local.dtype())));
  }
}

}  // namespace tessera::spmd

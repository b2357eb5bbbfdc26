// SPDX-License-Identifier: Apache-2.0
// What the norms over the last dim share.
#pragma once

#include "tessera/core/tensor.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {

/// x [..., C], C > 0, as [rows, C], contiguous.
inline Tensor rows_of(const Tensor& x) {
  const std::int64_t width = x.shape().back(0);
  return contiguous(x).reshape({x.numel() / width, width});
}

/// The dtype of a row's statistics: f64 for f64, f32 otherwise.
inline DType statistics_dtype(DType dtype) { return dtype == DType::kF64 ? dtype : DType::kF32; }

}  // namespace tessera::ops

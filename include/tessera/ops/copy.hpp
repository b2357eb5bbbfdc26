// SPDX-License-Identifier: Apache-2.0
// Strided copies, casts and fills.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct CopyArgs {
  TensorView x;  ///< any strides
  TensorView y;  ///< x's shape, any strides; the dtypes may differ (floats round to nearest even)
};
struct FillArgs {
  TensorView y;  ///< any strides
  double value = 0.0;
};

template <DeviceType D>
void copy_kernel(const CopyArgs& args, Stream& stream);
template <DeviceType D>
void fill_kernel(const FillArgs& args, Stream& stream);

/// y = x, with conversion; equal shapes; x and y do not overlap. Floats become integers by
/// truncation and must be in range. y's version is bumped.
void copy_into(const Tensor& y, const Tensor& x);
/// A contiguous copy.
Tensor copy(const Tensor& x);
/// x itself when it is contiguous, a contiguous copy otherwise.
Tensor contiguous(const Tensor& x);
/// x itself when it has the dtype, a converted contiguous copy otherwise.
Tensor cast(const Tensor& x, DType dtype);
/// y = value in place; the version is bumped.
void fill(const Tensor& y, double value);

}  // namespace tessera::ops

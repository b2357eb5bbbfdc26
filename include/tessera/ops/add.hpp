// SPDX-License-Identifier: Apache-2.0
// y = a + b with broadcasting from the right; also the accumulation y += alpha x.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct AddArgs {
  TensorView a;  ///< broadcast to y's shape (stride 0 where it repeats)
  TensorView b;  ///< likewise
  TensorView y;  ///< contiguous; may be a's or b's own memory when that has y's shape
};
struct AxpyArgs {
  TensorView x;  ///< contiguous, y's shape and dtype (or a lower float dtype than y's)
  TensorView y;  ///< contiguous
  double alpha = 1.0;
};

template <DeviceType D>
void add_kernel(const AddArgs& args, Stream& stream);
template <DeviceType D>
void axpy_kernel(const AxpyArgs& args, Stream& stream);

/// Floating dtypes, equal on both sides. kShape error when the shapes do not broadcast.
Tensor add(const Tensor& a, const Tensor& b);
/// y = a + b into `y` (contiguous, of the broadcast shape), which may be a or b itself; its version
/// is bumped.
void add_into(const Tensor& y, const Tensor& a, const Tensor& b);
/// y += alpha * x in place; same shape; y's version is bumped. x may be of a lower float dtype.
void axpy(const Tensor& y, const Tensor& x, double alpha = 1.0);

}  // namespace tessera::ops

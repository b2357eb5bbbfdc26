// SPDX-License-Identifier: Apache-2.0
// Dropout by global coordinates: element g is kept when random_bits(key, g) >= p 2^32, and divided
// by 1 - p then. g is the row-major index of the element in the *global* tensor, so that no layout
// and no recomputation changes the mask. The backward pass is the same function of dy.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/random.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

/// Where a local tensor lies in the global one: element i of dim d is element offset[d] + i there.
/// The size of dim 0 is not used: the rows of a step's micro-batches count on.
struct GlobalWindow {
  Shape global_shape;
  Shape offset;
};

struct DropoutArgs {
  TensorView x;  ///< contiguous
  TensorView y;  ///< contiguous, x's shape and dtype; may be x
  GlobalWindow window;
  RandomKey key;
  double p = 0.0;  ///< in (0, 1)
};

template <DeviceType D>
void dropout_kernel(const DropoutArgs& args, Stream& stream);

/// p in [0, 1); a copy of x for p = 0. f64 or f32. kShape error when x leaves the global shape in a
/// dim but the first.
Tensor dropout(const Tensor& x, double p, RandomKey key, const GlobalWindow& window);

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, arXiv 1711.05101) over many tensors in one pass, 28 bytes per f32
// element: g' = grad_scale g; m = b1 m + (1 - b1) g'; v = b2 v + (1 - b2) g'^2;
// p = p (1 - lr wd) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).
#pragma once

#include <span>

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct AdamWTensor {
  TensorView parameter, gradient, m, v;  ///< contiguous, one shape; f64, or f32
  double weight_decay = 0.0;
};
struct AdamWArgs {
  std::span<const AdamWTensor> tensors;
  double lr = 0.0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double grad_scale = 1.0;  ///< clipping coefficient and inverse loss scale
  std::int64_t step = 1;    ///< t, from 1
};

template <DeviceType D>
void adamw_kernel(const AdamWArgs& args, Stream& stream);

struct AdamWState {
  Tensor parameter, gradient, m, v;
  double weight_decay = 0.0;
};
struct AdamWOptions {
  double lr = 0.0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double grad_scale = 1.0;
  std::int64_t step = 1;
};

/// Updates parameters and moments in place; the parameters' versions are bumped.
void adamw(std::span<const AdamWState> tensors, const AdamWOptions& options);

}  // namespace tessera::ops

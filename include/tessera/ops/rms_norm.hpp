// SPDX-License-Identifier: Apache-2.0
// RMSNorm over the last dim (Zhang and Sennrich, arXiv 1910.07467): y = x rstd w with
// rstd = 1 / sqrt(mean(x^2) + eps). With a residual, x + residual is normalised, and returned as
// well: one pass over memory instead of two.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct RmsNormArgs {
  TensorView x;         ///< [rows, C], contiguous
  TensorView residual;  ///< [rows, C], or no data
  TensorView weight;    ///< [C]
  TensorView y;         ///< [rows, C]
  TensorView sum;       ///< [rows, C]: x + residual; no data without a residual
  TensorView rstd;      ///< [rows], f64 for f64, f32 otherwise
  double eps = 1e-5;
};
struct RmsNormBackwardArgs {
  TensorView x;  ///< what was normalised: x, or the sum with the residual
  TensorView weight, rstd, dy;
  TensorView dsum;  ///< [rows, C]: gradient of the sum from elsewhere, added; or no data
  TensorView dx;    ///< overwritten: the gradient of x and of the residual
};
struct RmsNormWeightBackwardArgs {
  TensorView x, rstd, dy;
  TensorView dweight;  ///< [C], added to
};

template <DeviceType D>
void rms_norm_kernel(const RmsNormArgs& args, Stream& stream);
template <DeviceType D>
void rms_norm_backward_kernel(const RmsNormBackwardArgs& args, Stream& stream);
/// Every column sums its rows in order: the same bits for any thread count.
template <DeviceType D>
void rms_norm_weight_backward_kernel(const RmsNormWeightBackwardArgs& args, Stream& stream);

struct RmsNormResult {
  Tensor y;     ///< x's shape
  Tensor rstd;  ///< x's leading dims
  Tensor sum;   ///< x + residual; undefined without a residual
};

/// x [..., C], weight [C] of x's dtype; residual of x's shape, or undefined. f64, f32, bf16, f16
/// (statistics in f32, rounded once). kShape error for C = 0.
RmsNormResult rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps);
/// `dsum` may be undefined.
Tensor rms_norm_backward(const Tensor& dy, const Tensor& dsum, const Tensor& x,
                         const Tensor& weight, const Tensor& rstd);
/// dweight [C] is added to.
void rms_norm_weight_backward(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                              const Tensor& rstd);

}  // namespace tessera::ops

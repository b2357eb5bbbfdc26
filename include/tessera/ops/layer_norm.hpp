// SPDX-License-Identifier: Apache-2.0
// LayerNorm over the last dim (Ba et al., arXiv 1607.06450): y = (x - mean) rstd w + b, with the
// biased variance and rstd = 1 / sqrt(var + eps). Statistics in f64 for f64, in f32
// otherwise, two-pass.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct LayerNormArgs {
  TensorView x;       ///< [rows, C], contiguous
  TensorView weight;  ///< [C]
  TensorView bias;    ///< [C]
  TensorView y;       ///< [rows, C]
  TensorView mean;    ///< [rows]
  TensorView rstd;    ///< [rows]
  double eps = 1e-5;
};
struct LayerNormBackwardArgs {
  TensorView x, weight, mean, rstd;
  TensorView dy;
  TensorView dx;  ///< overwritten
};
struct LayerNormWeightBackwardArgs {
  TensorView x, mean, rstd, dy;
  TensorView dweight;  ///< [C], added to
  TensorView dbias;    ///< [C], added to
};

template <DeviceType D>
void layer_norm_kernel(const LayerNormArgs& args, Stream& stream);
template <DeviceType D>
void layer_norm_backward_kernel(const LayerNormBackwardArgs& args, Stream& stream);
/// Every column sums its rows in order: the same bits for any thread count.
template <DeviceType D>
void layer_norm_weight_backward_kernel(const LayerNormWeightBackwardArgs& args, Stream& stream);

struct LayerNormResult {
  Tensor y;     ///< x's shape
  Tensor mean;  ///< x's leading dims
  Tensor rstd;
};

/// x [..., C]; weight and bias [C] of x's dtype: f64, f32, bf16, f16 (computed in f32, rounded
/// once). kShape error for C = 0.
LayerNormResult layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
Tensor layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                           const Tensor& mean, const Tensor& rstd);
/// dweight and dbias [C] are added to.
void layer_norm_weight_backward(const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                                const Tensor& x, const Tensor& mean, const Tensor& rstd);

}  // namespace tessera::ops

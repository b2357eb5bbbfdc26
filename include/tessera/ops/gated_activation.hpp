// SPDX-License-Identifier: Apache-2.0
// The gated half of a gated MLP: y = act(gate) up (SwiGLU with SiLU, GEGLU with GELU; Shazeer,
// arXiv 2002.05202), gate and up packed as they leave one projection.
#pragma once

#include "tessera/ops/activation.hpp"

namespace tessera::ops {

struct GatedActivationArgs {
  TensorView x;  ///< [rows, 2, F], contiguous: gate, up
  TensorView y;  ///< [rows, F]
  Activation kind = Activation::kSilu;
};
struct GatedActivationBackwardArgs {
  TensorView x, dy;
  TensorView dx;  ///< [rows, 2, F], overwritten; may be x
  Activation kind = Activation::kSilu;
};

template <DeviceType D>
void gated_activation_kernel(const GatedActivationArgs& args, Stream& stream);
template <DeviceType D>
void gated_activation_backward_kernel(const GatedActivationBackwardArgs& args, Stream& stream);

/// x [..., 2, F] gives [..., F]. f64, f32, bf16, f16 (computed in f32, rounded once). kShape error
/// when the second last dim is not 2.
Tensor gated_activation(const Tensor& x, Activation kind);
Tensor gated_activation_backward(const Tensor& x, const Tensor& dy, Activation kind);

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// Activation functions, element by element.
//   kGelu     0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2's, the tanh form of GELU
//   kGeluErf  x Phi(x) = 0.5 x erfc(-x / sqrt(2)): GELU itself (Hendrycks and Gimpel, 1606.08415)
//   kSilu     x / (1 + e^-x) (Elfwing et al., arXiv 1702.03118)
//   kRelu     max(x, 0); its gradient at 0 is 0
#pragma once

#include <cstdint>

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

enum class Activation : std::uint8_t { kGelu, kGeluErf, kSilu, kRelu };

struct ActivationArgs {
  TensorView x;  ///< contiguous
  TensorView y;  ///< contiguous, x's shape and dtype; may be x
  Activation kind = Activation::kGelu;
};
struct ActivationBackwardArgs {
  TensorView x;   ///< the forward input
  TensorView dy;  ///< x's shape
  TensorView dx;  ///< overwritten; may be dy
  Activation kind = Activation::kGelu;
};

template <DeviceType D>
void activation_kernel(const ActivationArgs& args, Stream& stream);
template <DeviceType D>
void activation_backward_kernel(const ActivationBackwardArgs& args, Stream& stream);

/// f64, f32, bf16, f16; the low ones are computed in f32 and rounded once. Any strides; the result
/// is contiguous.
Tensor activation(const Tensor& x, Activation kind);
Tensor activation_backward(const Tensor& x, const Tensor& dy, Activation kind);

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// Cross entropy of logits against class indices: per token, logsumexp(x) - (1 - s) x[target] - s
// mean(x), with the label smoothing s (Szegedy et al., arXiv 1512.00567), and 0 where the target is
// ignored. With a soft cap c, x = c tanh(logit / c) (Gemma 2, arXiv 2408.00118). The sum is taken
// in f64 over fixed blocks of tokens.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

inline constexpr std::int32_t kIgnoreIndex = -1;

struct CrossEntropyOptions {
  std::int32_t ignore_index = kIgnoreIndex;
  double label_smoothing = 0.0;  ///< in [0, 1]
  double soft_cap = 0.0;         ///< 0: none
};

struct CrossEntropyArgs {
  TensorView logits;   ///< [N, V], contiguous
  TensorView targets;  ///< [N], i32
  TensorView losses;   ///< [N], f64
  TensorView lse;      ///< [N], logits' dtype
  CrossEntropyOptions options{};
};
struct CrossEntropyBackwardArgs {
  TensorView logits, targets, lse;
  TensorView dlogits;  ///< [N, V], overwritten, 0 for ignored tokens; may be logits
  double dsum = 1.0;   ///< gradient of the sum
  CrossEntropyOptions options{};
};

template <DeviceType D>
void cross_entropy_kernel(const CrossEntropyArgs& args, Stream& stream);
template <DeviceType D>
void cross_entropy_backward_kernel(const CrossEntropyBackwardArgs& args, Stream& stream);

struct CrossEntropyResult {
  Tensor sum;     ///< [], f64: the sum over tokens
  Tensor losses;  ///< targets' shape, f64
  Tensor lse;     ///< targets' shape, logits' dtype
};

/// logits [..., V], targets [...] i32. f64, f32. A target outside [0, V) that is not ignored is an
/// error, as is an option outside its range.
CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& targets,
                                 const CrossEntropyOptions& options = {});
Tensor cross_entropy_backward(double dsum, const Tensor& logits, const Tensor& targets,
                              const Tensor& lse, const CrossEntropyOptions& options = {});
/// The same in place: logits (contiguous) become their gradient; their version is bumped.
void cross_entropy_backward_(double dsum, const Tensor& logits, const Tensor& targets,
                             const Tensor& lse, const CrossEntropyOptions& options = {});
/// Number of targets that are not ignored.
std::int64_t count_targets(const Tensor& targets, std::int32_t ignore_index = kIgnoreIndex);

}  // namespace tessera::ops

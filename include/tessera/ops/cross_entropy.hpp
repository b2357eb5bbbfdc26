// SPDX-License-Identifier: Apache-2.0
// Cross entropy of logits against class indices: per token, logsumexp(logits) - logits[target], and
// 0 where the target is ignored. The sum is taken in f64 over fixed blocks of tokens.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

inline constexpr std::int32_t kIgnoreIndex = -1;

struct CrossEntropyArgs {
  TensorView logits;   ///< [N, V], contiguous
  TensorView targets;  ///< [N], i32
  TensorView losses;   ///< [N], f64
  TensorView lse;      ///< [N], logits' dtype
  std::int32_t ignore_index = kIgnoreIndex;
};
struct CrossEntropyBackwardArgs {
  TensorView logits, targets, lse;
  TensorView dlogits;  ///< [N, V], overwritten: (softmax - onehot) * dsum, 0 for ignored tokens
  double dsum = 1.0;   ///< gradient of the sum
  std::int32_t ignore_index = kIgnoreIndex;
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

/// logits [..., V], targets [...] i32. A target outside [0, V) that is not `ignore_index` is an
/// error.
CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& targets,
                                 std::int32_t ignore_index = kIgnoreIndex);
Tensor cross_entropy_backward(double dsum, const Tensor& logits, const Tensor& targets,
                              const Tensor& lse, std::int32_t ignore_index = kIgnoreIndex);
/// Number of targets that are not ignored.
std::int64_t count_targets(const Tensor& targets, std::int32_t ignore_index = kIgnoreIndex);

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/cross_entropy.hpp"

#include <fmt/format.h>

#include "check.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/ops/sum.hpp"

namespace tessera::ops {
namespace {

struct Flat {
  Tensor logits, targets;
};

Flat checked(const Tensor& logits, const Tensor& targets, std::int32_t ignore_index) {
  require_dtype("cross_entropy", "targets", targets, DType::kI32);
  if (logits.rank() < 1 || logits.shape().back(0) < 1 ||
      logits.shape().slice(0, logits.rank() - 1) != targets.shape()) {
    throw Error(ErrorCode::kShape,
                fmt::format("cross_entropy: logits must be the targets' shape {} and a vocabulary, "
                            "not {}",
                            targets.shape().to_string(), logits.shape().to_string()));
  }
  const std::int64_t vocabulary = logits.shape().back(0);
  const std::int64_t count = targets.numel();
  Flat flat{contiguous(logits).reshape({count, vocabulary}), contiguous(targets).reshape({count})};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t target = flat.targets.data<std::int32_t>()[i];
    TESSERA_CHECK(
        target == ignore_index || (target >= 0 && target < vocabulary),
        "cross_entropy: target {} at position {} is outside the vocabulary of {} and is not "
        "the ignored index {}",
        target, i, vocabulary, ignore_index);
  }
  return flat;
}

}  // namespace

CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& targets,
                                 std::int32_t ignore_index) {
  const Flat flat = checked(logits, targets, ignore_index);
  Context& context = logits.context();
  CrossEntropyResult result;
  result.losses = Tensor::empty(context, targets.shape(), DType::kF64);
  result.lse = Tensor::empty(context, targets.shape(), logits.dtype());
  if (targets.numel() > 0) {
    const CrossEntropyArgs args{flat.logits.view(), flat.targets.view(), result.losses.view(),
                                result.lse.view(), ignore_index};
    on_device(logits.device(),
              [&]<DeviceType D>() { cross_entropy_kernel<D>(args, context.stream()); });
  }
  result.sum = sum(result.losses);
  return result;
}

Tensor cross_entropy_backward(double dsum, const Tensor& logits, const Tensor& targets,
                              const Tensor& lse, std::int32_t ignore_index) {
  const Flat flat = checked(logits, targets, ignore_index);
  require_shape("cross_entropy_backward", "lse", lse, targets.shape());
  require_dtype("cross_entropy_backward", "lse", lse, logits.dtype());
  const Tensor dense_lse = contiguous(lse);
  Context& context = logits.context();
  Tensor dlogits = Tensor::empty(context, logits.shape(), logits.dtype());
  if (targets.numel() > 0) {
    const CrossEntropyBackwardArgs args{flat.logits.view(),
                                        flat.targets.view(),
                                        dense_lse.view(),
                                        dlogits.reshape(flat.logits.shape()).view(),
                                        dsum,
                                        ignore_index};
    on_device(logits.device(),
              [&]<DeviceType D>() { cross_entropy_backward_kernel<D>(args, context.stream()); });
  }
  return dlogits;
}

std::int64_t count_targets(const Tensor& targets, std::int32_t ignore_index) {
  require_dtype("count_targets", "targets", targets, DType::kI32);
  std::int64_t count = 0;
  for (const std::int32_t target : targets.to_vector<std::int32_t>()) {
    count += target != ignore_index ? 1 : 0;
  }
  return count;
}

}  // namespace tessera::ops

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

Flat checked(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  TESSERA_CHECK(options.label_smoothing >= 0.0 && options.label_smoothing <= 1.0,
                "cross_entropy: label_smoothing must lie in [0, 1], not {}",
                options.label_smoothing);
  TESSERA_CHECK(options.soft_cap >= 0.0, "cross_entropy: soft_cap must be 0 or positive, not {}",
                options.soft_cap);
  const std::int32_t ignore_index = options.ignore_index;
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
                                 const CrossEntropyOptions& options) {
  const Flat flat = checked(logits, targets, options);
  Context& context = logits.context();
  CrossEntropyResult result;
  result.losses = Tensor::empty(context, targets.shape(), DType::kF64);
  result.lse = Tensor::empty(context, targets.shape(), logits.dtype());
  if (targets.numel() > 0) {
    const CrossEntropyArgs args{flat.logits.view(), flat.targets.view(), result.losses.view(),
                                result.lse.view(), options};
    on_device(logits.device(),
              [&]<DeviceType D>() { cross_entropy_kernel<D>(args, context.stream()); });
  }
  result.sum = sum(result.losses);
  return result;
}

namespace {

void backward_into(const Tensor& dlogits, double dsum, const Tensor& logits, const Tensor& targets,
                   const Tensor& lse, const CrossEntropyOptions& options) {
  const Flat flat = checked(logits, targets, options);
  require_shape("cross_entropy_backward", "lse", lse, targets.shape());
  require_dtype("cross_entropy_backward", "lse", lse, logits.dtype());
  if (targets.numel() == 0) return;
  const Tensor dense_lse = contiguous(lse);
  const CrossEntropyBackwardArgs args{flat.logits.view(),
                                      flat.targets.view(),
                                      dense_lse.view(),
                                      dlogits.reshape(flat.logits.shape()).view(),
                                      dsum,
                                      options};
  Stream& stream = logits.context().stream();
  on_device(logits.device(),
            [&]<DeviceType D>() { cross_entropy_backward_kernel<D>(args, stream); });
}

}  // namespace

Tensor cross_entropy_backward(double dsum, const Tensor& logits, const Tensor& targets,
                              const Tensor& lse, const CrossEntropyOptions& options) {
  Tensor dlogits = Tensor::empty(logits.context(), logits.shape(), logits.dtype());
  backward_into(dlogits, dsum, logits, targets, lse, options);
  return dlogits;
}

void cross_entropy_backward_(double dsum, const Tensor& logits, const Tensor& targets,
                             const Tensor& lse, const CrossEntropyOptions& options) {
  require_contiguous("cross_entropy_backward_", "logits", logits);
  backward_into(logits, dsum, logits, targets, lse, options);
  logits.mark_changed();
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

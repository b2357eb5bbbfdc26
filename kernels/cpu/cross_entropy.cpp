// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/cross_entropy.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/math.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

template <typename T>
[[gnu::always_inline]] inline T log_sum_exp(const T* x, std::int64_t count) {
  const T most = kernels::lane_max(x, count);
  if (most == -INFINITY) return most;
  return most + std::log(kernels::lane_sum<T>(
                    count, [x, most](std::int64_t i) { return kernels::fast_exp(x[i] - most); }));
}

template <typename T>
[[gnu::always_inline]] inline void softmax_gradient(const T* x, T* dx, std::int64_t count, T lse,
                                                    T scale) {
  for (std::int64_t i = 0; i < count; ++i) dx[i] = kernels::fast_exp(x[i] - lse) * scale;
}

TESSERA_MULTIVERSION float log_sum_exp_run(const float* x, std::int64_t n) {
  return log_sum_exp(x, n);
}
TESSERA_MULTIVERSION double log_sum_exp_run(const double* x, std::int64_t n) {
  return log_sum_exp(x, n);
}
TESSERA_MULTIVERSION void gradient_run(const float* x, float* dx, std::int64_t n, float lse,
                                       float scale) {
  softmax_gradient(x, dx, n, lse, scale);
}
TESSERA_MULTIVERSION void gradient_run(const double* x, double* dx, std::int64_t n, double lse,
                                       double scale) {
  softmax_gradient(x, dx, n, lse, scale);
}

}  // namespace

template <>
void cross_entropy_kernel<DeviceType::kCpu>(const CrossEntropyArgs& args, Stream& stream) {
  const std::int64_t v = args.logits.shape[1];
  const std::int32_t* targets = args.targets.as<std::int32_t>();
  kernels::visit_f64_f32("cross_entropy", args.logits.dtype, [&]<typename T>() {
    parallel_for(stream, args.logits.shape[0], 1 + 4096 / v, [&](std::int64_t a, std::int64_t b) {
      for (std::int64_t n = a; n < b; ++n) {
        const T* row = args.logits.as<T>() + n * v;
        const T lse = log_sum_exp_run(row, v);
        args.lse.as<T>()[n] = lse;
        args.losses.as<double>()[n] =
            targets[n] == args.ignore_index
                ? 0.0
                : static_cast<double>(lse) - static_cast<double>(row[targets[n]]);
      }
    });
  });
}

template <>
void cross_entropy_backward_kernel<DeviceType::kCpu>(const CrossEntropyBackwardArgs& args,
                                                     Stream& stream) {
  const std::int64_t v = args.logits.shape[1];
  const std::int32_t* targets = args.targets.as<std::int32_t>();
  kernels::visit_f64_f32("cross_entropy", args.logits.dtype, [&]<typename T>() {
    const T scale = static_cast<T>(args.dsum);
    parallel_for(stream, args.logits.shape[0], 1 + 4096 / v, [&](std::int64_t a, std::int64_t b) {
      for (std::int64_t n = a; n < b; ++n) {
        T* out = args.dlogits.as<T>() + n * v;
        if (targets[n] == args.ignore_index) {
          std::fill(out, out + v, T{0});
          continue;
        }
        gradient_run(args.logits.as<T>() + n * v, out, v, args.lse.as<T>()[n], scale);
        out[targets[n]] -= scale;
      }
    });
  });
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// A row of logits is read once: block by block, its largest value and its sum of exponentials are
// found in cache and merged into those of the row so far.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/vector-inl.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/cross_entropy.hpp"

#ifndef TESSERA_KERNELS_CPU_CROSS_ENTROPY_ONCE_
#define TESSERA_KERNELS_CPU_CROSS_ENTROPY_ONCE_
namespace tessera::ops {
namespace {

/// log(sum(e^x)) = most + log(sum), apart: a loss subtracts its logit from `most` first.
struct LogSumExp {
  double most;
  double sum;
};

}  // namespace
}  // namespace tessera::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::ops::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace vec = kernels::HWY_NAMESPACE;

constexpr std::int64_t kBlock = 2048;

template <typename T>
LogSumExp log_sum_exp(const T* x, std::int64_t count) {
  const hn::ScalableTag<T> d;
  constexpr T kLeast = -INFINITY;
  const auto add = [](auto a, auto b) { return hn::Add(a, b); };
  const auto max = [](auto a, auto b) { return hn::Max(a, b); };
  T most = kLeast;
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; i += kBlock) {
    const std::int64_t n = std::min(kBlock, count - i);
    const T block_most = hn::GetLane(
        hn::MaxOfLanes(d, vec::fold_vectors(d, x + i, n, hn::Set(d, kLeast), kLeast, max, max)));
    const T next = std::max(most, block_most);
    // A row that is -inf so far is summed as it is: -inf - -inf would be NaN.
    const T shift = next == kLeast ? T{0} : next;
    if (next > most) sum *= std::exp(static_cast<double>(most) - static_cast<double>(next));
    most = next;
    const auto shifted = hn::Set(d, shift);
    const auto term = [d, shifted](auto a, auto v) {
      return hn::Add(a, vec::exp(d, hn::Sub(v, shifted)));
    };
    sum += static_cast<double>(hn::GetLane(
        hn::SumOfLanes(d, vec::fold_vectors(d, x + i, n, hn::Zero(d), kLeast, term, add))));
  }
  return {static_cast<double>(most), sum};
}

template <typename T>
void gradient(const T* x, T* dx, std::int64_t count, T lse, T scale) {
  const hn::ScalableTag<T> d;
  const T* const in[] = {x};
  T* const out[] = {dx};
  const auto shift = hn::Set(d, lse);
  const auto factor = hn::Set(d, scale);
  vec::map_vectors(d, count, in, out, [d, shift, factor](auto& v, auto& r) {
    r[0] = hn::Mul(vec::exp(d, hn::Sub(v[0], shift)), factor);
  });
}

LogSumExp log_sum_exp_f32(const float* x, std::int64_t n) { return log_sum_exp(x, n); }
LogSumExp log_sum_exp_f64(const double* x, std::int64_t n) { return log_sum_exp(x, n); }
void gradient_f32(const float* x, float* dx, std::int64_t n, float lse, float scale) {
  gradient(x, dx, n, lse, scale);
}
void gradient_f64(const double* x, double* dx, std::int64_t n, double lse, double scale) {
  gradient(x, dx, n, lse, scale);
}

}  // namespace
}  // namespace tessera::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::ops {
namespace {

HWY_EXPORT(log_sum_exp_f32);
HWY_EXPORT(log_sum_exp_f64);
HWY_EXPORT(gradient_f32);
HWY_EXPORT(gradient_f64);

LogSumExp log_sum_exp_run(const float* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(log_sum_exp_f32)(x, n);
}
LogSumExp log_sum_exp_run(const double* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(log_sum_exp_f64)(x, n);
}
void gradient_run(const float* x, float* dx, std::int64_t n, float lse, float scale) {
  HWY_DYNAMIC_DISPATCH(gradient_f32)(x, dx, n, lse, scale);
}
void gradient_run(const double* x, double* dx, std::int64_t n, double lse, double scale) {
  HWY_DYNAMIC_DISPATCH(gradient_f64)(x, dx, n, lse, scale);
}

std::int64_t row_grain(std::int64_t vocabulary) { return 1 + 4096 / vocabulary; }

}  // namespace

template <>
void cross_entropy_kernel<DeviceType::kCpu>(const CrossEntropyArgs& args, Stream& stream) {
  const std::int64_t v = args.logits.shape[1];
  const std::int32_t* targets = args.targets.as<std::int32_t>();
  kernels::visit_f64_f32("cross_entropy", args.logits.dtype, [&]<typename T>() {
    parallel_for(stream, args.logits.shape[0], row_grain(v), [&](std::int64_t a, std::int64_t b) {
      for (std::int64_t n = a; n < b; ++n) {
        const T* row = args.logits.as<T>() + n * v;
        const LogSumExp lse = log_sum_exp_run(row, v);
        const double log_sum = std::log(lse.sum);
        args.lse.as<T>()[n] = static_cast<T>(lse.most + log_sum);
        args.losses.as<double>()[n] =
            targets[n] == args.ignore_index
                ? 0.0
                : (lse.most - static_cast<double>(row[targets[n]])) + log_sum;
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
    parallel_for(stream, args.logits.shape[0], row_grain(v), [&](std::int64_t a, std::int64_t b) {
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
#endif

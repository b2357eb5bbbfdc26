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

#include "kernels/cpu/math.hpp"
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
constexpr std::int64_t kStep = 64;  ///< a multiple of two vectors

/// cap tanh(x / cap), with tanh u = 2 / (1 + e^-2u) - 1.
template <class D, class V>
HWY_INLINE V soft_capped(D d, V x, V cap, V minus_two_over_cap) {
  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V e = vec::exp(d, hn::Mul(x, minus_two_over_cap));
  return hn::Mul(cap, hn::Sub(hn::Div(hn::Set(d, hn::TFromD<D>{2}), hn::Add(one, e)), one));
}

/// The row with its soft cap, when there is one: one element, and vectors.
template <typename T>
struct Capping {
  T cap;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    if (cap == T{0}) return x;
    return soft_capped(d, x, hn::Set(d, cap), hn::Set(d, T{-2} / cap));
  }
  T one(T x) const {
    const hn::CappedTag<T, 1> d;
    return hn::GetLane((*this)(d, hn::Set(d, x)));
  }
};

template <typename T>
LogSumExp log_sum_exp(const T* x, std::int64_t count, double cap) {
  const hn::ScalableTag<T> d;
  const Capping<T> capped{static_cast<T>(cap)};
  constexpr T kLeast = -INFINITY;
  const auto add = [](auto a, auto b) { return hn::Add(a, b); };
  const auto max = [](auto a, auto b) { return hn::Max(a, b); };
  T most = kLeast;
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; i += kBlock) {
    const std::int64_t n = std::min(kBlock, count - i);
    const T block_most = capped.one(hn::GetLane(
        hn::MaxOfLanes(d, vec::fold_vectors(d, x + i, n, hn::Set(d, kLeast), kLeast, max, max))));
    const T next = std::max(most, block_most);
    // A row that is -inf so far is summed as it is: -inf - -inf would be NaN.
    const T shift = next == kLeast ? T{0} : next;
    if (next > most) sum *= std::exp(static_cast<double>(most) - static_cast<double>(next));
    most = next;
    const auto shifted = hn::Set(d, shift);
    const auto term = [&](auto a, auto v) {
      return hn::Add(a, vec::exp(d, hn::Sub(capped(d, v), shifted)));
    };
    // Padding beyond the end is -inf; capped it would be -cap and count.
    const std::int64_t whole = cap == 0.0 ? n : n / kStep * kStep;
    sum += static_cast<double>(hn::GetLane(
        hn::SumOfLanes(d, vec::fold_vectors(d, x + i, whole, hn::Zero(d), kLeast, term, add))));
    for (std::int64_t k = whole; k < n; ++k) {
      sum += std::exp(static_cast<double>(capped.one(x[i + k])) - static_cast<double>(shift));
    }
  }
  return {static_cast<double>(most), sum};
}

template <typename T>
void gradient(const CrossEntropyBackwardArgs& args, std::int64_t row) {
  const hn::ScalableTag<T> d;
  const std::int64_t count = args.logits.shape[1];
  const T* const in[] = {args.logits.as<T>() + row * count};
  T* const out[] = {args.dlogits.as<T>() + row * count};
  const auto scale = static_cast<T>(args.dsum);
  const auto shift = hn::Set(d, args.lse.as<T>()[row]);
  const auto factor = hn::Set(d, scale);
  const std::int32_t target = args.targets.as<std::int32_t>()[row];
  const double smoothing = args.options.label_smoothing;
  const auto hit = static_cast<T>(args.dsum * (1.0 - smoothing));
  if (args.options.soft_cap == 0.0 && smoothing == 0.0) {
    vec::map_vectors(d, count, in, out, [d, shift, factor](auto& v, auto& r) {
      r[0] = hn::Mul(vec::exp(d, hn::Sub(v[0], shift)), factor);
    });
    out[0][target] -= hit;
    return;
  }
  const Capping<T> capped{static_cast<T>(args.options.soft_cap)};
  const T at_target = capped.one(in[0][target]);  // before it may be overwritten
  const T cap = capped.cap;
  const auto uniform =
      hn::Set(d, static_cast<T>(args.dsum * smoothing / static_cast<double>(count)));
  const auto inverse = hn::Set(d, cap == T{0} ? T{0} : T{1} / cap);
  const auto one = hn::Set(d, T{1});
  vec::map_vectors(d, count, in, out, [&](auto& v, auto& r) {
    const auto x = capped(d, v[0]);
    const auto t = hn::Mul(x, inverse);
    const auto slope = hn::NegMulAdd(t, t, one);  // 1 - tanh^2; 1 without a cap
    r[0] = hn::Mul(slope, hn::Sub(hn::Mul(vec::exp(d, hn::Sub(x, shift)), factor), uniform));
  });
  const T t = cap == T{0} ? T{0} : at_target / cap;
  out[0][target] -= hit * (T{1} - t * t);
}

/// The sum of a row's capped logits.
template <typename T>
double capped_sum(const T* x, std::int64_t count, double cap) {
  const Capping<T> capped{static_cast<T>(cap)};
  if (cap == 0.0) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; i += kBlock) {
      sum += static_cast<double>(kernels::lane_sum<T>(std::min(kBlock, count - i),
                                                      [x, i](std::int64_t k) { return x[i + k]; }));
    }
    return sum;
  }
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(capped.one(x[i]));
  return sum;
}

template <typename T>
void losses(const CrossEntropyArgs& args, std::int64_t row) {
  const std::int64_t count = args.logits.shape[1];
  const CrossEntropyOptions& options = args.options;
  const T* const x = args.logits.as<T>() + row * count;
  const LogSumExp lse = log_sum_exp(x, count, options.soft_cap);
  const double log_sum = std::log(lse.sum);
  args.lse.as<T>()[row] = static_cast<T>(lse.most + log_sum);
  double& loss = args.losses.as<double>()[row];
  const std::int32_t target = args.targets.as<std::int32_t>()[row];
  if (target == options.ignore_index) {
    loss = 0.0;
    return;
  }
  const Capping<T> capped{static_cast<T>(options.soft_cap)};
  loss = (lse.most - static_cast<double>(capped.one(x[target]))) + log_sum;
  if (options.label_smoothing > 0.0) {
    const double mean = capped_sum(x, count, options.soft_cap) / static_cast<double>(count);
    loss = (1.0 - options.label_smoothing) * loss +
           options.label_smoothing * ((lse.most - mean) + log_sum);
  }
}

void forward(const CrossEntropyArgs& args, std::int64_t first, std::int64_t last) {
  kernels::visit_f64_f32("cross_entropy", args.logits.dtype, [&]<typename T>() {
    for (std::int64_t row = first; row < last; ++row) losses<T>(args, row);
  });
}

void backward(const CrossEntropyBackwardArgs& args, std::int64_t first, std::int64_t last) {
  const std::int64_t count = args.logits.shape[1];
  kernels::visit_f64_f32("cross_entropy", args.logits.dtype, [&]<typename T>() {
    for (std::int64_t row = first; row < last; ++row) {
      if (args.targets.as<std::int32_t>()[row] == args.options.ignore_index) {
        T* const out = args.dlogits.as<T>() + row * count;
        std::fill(out, out + count, T{0});
      } else {
        gradient<T>(args, row);
      }
    }
  });
}

}  // namespace
}  // namespace tessera::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::ops {
namespace {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

std::int64_t row_grain(std::int64_t vocabulary) { return 1 + 4096 / vocabulary; }

}  // namespace

template <>
void cross_entropy_kernel<DeviceType::kCpu>(const CrossEntropyArgs& args, Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(forward);
  parallel_for(stream, args.logits.shape[0], row_grain(args.logits.shape[1]),
               [&](std::int64_t a, std::int64_t b) { run(args, a, b); });
}

template <>
void cross_entropy_backward_kernel<DeviceType::kCpu>(const CrossEntropyBackwardArgs& args,
                                                     Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(backward);
  parallel_for(stream, args.logits.shape[0], row_grain(args.logits.shape[1]),
               [&](std::int64_t a, std::int64_t b) { run(args, a, b); });
}

}  // namespace tessera::ops
#endif

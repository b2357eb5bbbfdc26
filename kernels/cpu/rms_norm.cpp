// SPDX-License-Identifier: Apache-2.0
// Plain loops, compiled for each of Highway's targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/convert.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/rms_norm.hpp"

HWY_BEFORE_NAMESPACE();
namespace tessera::ops::HWY_NAMESPACE {
namespace {

using kernels::Compute;
using kernels::computed;
using kernels::lane_sum;
using kernels::stored;

constexpr std::int64_t kPanel = 1024;  ///< columns whose weight gradients are summed together
constexpr std::int64_t kRows = 64;     ///< rows whose weight gradients are summed in f32

template <typename S>
HWY_INLINE void forward_row(const RmsNormArgs& args, std::int64_t row) {
  using C = Compute<S>;
  const std::int64_t c = args.x.shape[1];
  const S* x = args.x.as<S>() + row * c;
  const S* const w = args.weight.as<S>();
  S* const y = args.y.as<S>() + row * c;
  kernels::prefetch_run(x + c, c);
  if (args.residual.data != nullptr) {
    const S* const r = args.residual.as<S>() + row * c;
    S* const sum = args.sum.as<S>() + row * c;
    kernels::prefetch_run(r + c, c);
    for (std::int64_t i = 0; i < c; ++i) sum[i] = stored<S>(computed(x[i]) + computed(r[i]));
    x = sum;
  }
  const C square = lane_sum<C>(c, [x](std::int64_t i) { return computed(x[i]) * computed(x[i]); });
  const C rstd = C{1} / std::sqrt(square / static_cast<C>(c) + static_cast<C>(args.eps));
  args.rstd.as<C>()[row] = rstd;
  for (std::int64_t i = 0; i < c; ++i) y[i] = stored<S>(computed(x[i]) * rstd * computed(w[i]));
}

/// dx = rstd (dn - n mean(dn n)) [+ dsum], with n = x rstd and dn = dy w.
template <typename S>
HWY_INLINE void backward_row(const RmsNormBackwardArgs& args, std::int64_t row) {
  using C = Compute<S>;
  const std::int64_t c = args.x.shape[1];
  const S* const x = args.x.as<S>() + row * c;
  const S* const dy = args.dy.as<S>() + row * c;
  const S* const w = args.weight.as<S>();
  S* const dx = args.dx.as<S>() + row * c;
  const C rstd = args.rstd.as<C>()[row];
  kernels::prefetch_run(x + c, c);
  kernels::prefetch_run(dy + c, c);
  const C mean = lane_sum<C>(c,
                             [=](std::int64_t i) {
                               return computed(dy[i]) * computed(w[i]) * (computed(x[i]) * rstd);
                             }) /
                 static_cast<C>(c);
  if (args.dsum.data == nullptr) {
    for (std::int64_t i = 0; i < c; ++i) {
      const C n = computed(x[i]) * rstd;
      dx[i] = stored<S>(rstd * (computed(dy[i]) * computed(w[i]) - n * mean));
    }
    return;
  }
  const S* const dsum = args.dsum.as<S>() + row * c;
  for (std::int64_t i = 0; i < c; ++i) {
    const C n = computed(x[i]) * rstd;
    dx[i] = stored<S>(computed(dsum[i]) + rstd * (computed(dy[i]) * computed(w[i]) - n * mean));
  }
}

template <typename S>
HWY_INLINE void weight_panel(const RmsNormWeightBackwardArgs& args, std::int64_t first,
                             std::int64_t count) {
  using C = Compute<S>;
  const std::int64_t rows = args.x.shape[0];
  const std::int64_t c = args.x.shape[1];
  double total[kPanel] = {};
  for (std::int64_t block = 0; block < rows; block += kRows) {
    C part[kPanel] = {};
    for (std::int64_t row = block; row < std::min(block + kRows, rows); ++row) {
      const S* const x = args.x.as<S>() + row * c + first;
      const S* const dy = args.dy.as<S>() + row * c + first;
      kernels::prefetch_run(x + c, count);
      kernels::prefetch_run(dy + c, count);
      const C rstd = args.rstd.as<C>()[row];
      for (std::int64_t i = 0; i < count; ++i) {
        part[i] += computed(dy[i]) * (computed(x[i]) * rstd);
      }
    }
    for (std::int64_t i = 0; i < count; ++i) total[i] += static_cast<double>(part[i]);
  }
  S* const dw = args.dweight.as<S>() + first;
  for (std::int64_t i = 0; i < count; ++i) {
    dw[i] = stored<S>(static_cast<C>(static_cast<double>(computed(dw[i])) + total[i]));
  }
}

void forward(const RmsNormArgs& args, std::int64_t first, std::int64_t last) {
  kernels::visit_computed("rms_norm", args.x.dtype, [&]<typename S>() {
    for (std::int64_t row = first; row < last; ++row) forward_row<S>(args, row);
  });
}

void backward(const RmsNormBackwardArgs& args, std::int64_t first, std::int64_t last) {
  kernels::visit_computed("rms_norm", args.x.dtype, [&]<typename S>() {
    for (std::int64_t row = first; row < last; ++row) backward_row<S>(args, row);
  });
}

void weight_backward(const RmsNormWeightBackwardArgs& args, std::int64_t first, std::int64_t last) {
  kernels::visit_computed("rms_norm", args.x.dtype, [&]<typename S>() {
    for (; first < last; first += kPanel) {
      weight_panel<S>(args, first, std::min(kPanel, last - first));
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
HWY_EXPORT(weight_backward);

constexpr std::int64_t kUnit = 64;  ///< columns that stay on one thread

std::int64_t row_grain(std::int64_t width) { return 1 + (1 << 13) / width; }

}  // namespace

template <>
void rms_norm_kernel<DeviceType::kCpu>(const RmsNormArgs& args, Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(forward);
  parallel_for(stream, args.x.shape[0], row_grain(args.x.shape[1]),
               [&](std::int64_t a, std::int64_t b) { run(args, a, b); });
}

template <>
void rms_norm_backward_kernel<DeviceType::kCpu>(const RmsNormBackwardArgs& args, Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(backward);
  parallel_for(stream, args.x.shape[0], row_grain(args.x.shape[1]),
               [&](std::int64_t a, std::int64_t b) { run(args, a, b); });
}

template <>
void rms_norm_weight_backward_kernel<DeviceType::kCpu>(const RmsNormWeightBackwardArgs& args,
                                                       Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(weight_backward);
  const std::int64_t c = args.x.shape[1];
  parallel_for(stream, (c + kUnit - 1) / kUnit, 1, [&](std::int64_t a, std::int64_t b) {
    run(args, a * kUnit, std::min(b * kUnit, c));
  });
}

}  // namespace tessera::ops
#endif

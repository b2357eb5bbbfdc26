// SPDX-License-Identifier: Apache-2.0
// Plain loops, compiled for each of Highway's targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/convert.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/layer_norm.hpp"

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
HWY_INLINE void forward_row(const LayerNormArgs& args, std::int64_t row) {
  using C = Compute<S>;
  const std::int64_t c = args.x.shape[1];
  const S* const x = args.x.as<S>() + row * c;
  const S* const w = args.weight.as<S>();
  const S* const b = args.bias.as<S>();
  S* const y = args.y.as<S>() + row * c;
  kernels::prefetch_run(x + c, c);
  const C m = lane_sum<C>(c, [x](std::int64_t i) { return computed(x[i]); }) / static_cast<C>(c);
  const C variance =
      lane_sum<C>(c,
                  [x, m](std::int64_t i) { return (computed(x[i]) - m) * (computed(x[i]) - m); }) /
      static_cast<C>(c);
  const C r = C{1} / std::sqrt(variance + static_cast<C>(args.eps));
  args.mean.as<C>()[row] = m;
  args.rstd.as<C>()[row] = r;
  for (std::int64_t i = 0; i < c; ++i) {
    y[i] = stored<S>((computed(x[i]) - m) * r * computed(w[i]) + computed(b[i]));
  }
}

/// dx = rstd (dn - mean(dn) - n mean(dn n)), with n = (x - mean) rstd and dn = dy w.
template <typename S>
HWY_INLINE void backward_row(const LayerNormBackwardArgs& args, std::int64_t row) {
  using C = Compute<S>;
  const std::int64_t c = args.x.shape[1];
  const S* const x = args.x.as<S>() + row * c;
  const S* const dy = args.dy.as<S>() + row * c;
  const S* const w = args.weight.as<S>();
  S* const dx = args.dx.as<S>() + row * c;
  const C m = args.mean.as<C>()[row];
  const C r = args.rstd.as<C>()[row];
  kernels::prefetch_run(x + c, c);
  kernels::prefetch_run(dy + c, c);
  const C mean_dn =
      lane_sum<C>(c, [=](std::int64_t i) { return computed(dy[i]) * computed(w[i]); }) /
      static_cast<C>(c);
  const C mean_dn_n =
      lane_sum<C>(c,
                  [=](std::int64_t i) {
                    return computed(dy[i]) * computed(w[i]) * ((computed(x[i]) - m) * r);
                  }) /
      static_cast<C>(c);
  for (std::int64_t i = 0; i < c; ++i) {
    dx[i] = stored<S>(
        r * (computed(dy[i]) * computed(w[i]) - mean_dn - (computed(x[i]) - m) * r * mean_dn_n));
  }
}

template <typename S>
HWY_INLINE void weight_panel(const LayerNormWeightBackwardArgs& args, std::int64_t first,
                             std::int64_t count) {
  using C = Compute<S>;
  const std::int64_t rows = args.x.shape[0];
  const std::int64_t c = args.x.shape[1];
  double total_dw[kPanel] = {};
  double total_db[kPanel] = {};
  for (std::int64_t block = 0; block < rows; block += kRows) {
    C dw[kPanel] = {};
    C db[kPanel] = {};
    for (std::int64_t row = block; row < std::min(block + kRows, rows); ++row) {
      const S* const x = args.x.as<S>() + row * c + first;
      const S* const dy = args.dy.as<S>() + row * c + first;
      kernels::prefetch_run(x + c, count);
      kernels::prefetch_run(dy + c, count);
      const C m = args.mean.as<C>()[row];
      const C r = args.rstd.as<C>()[row];
      for (std::int64_t i = 0; i < count; ++i) {
        dw[i] += computed(dy[i]) * ((computed(x[i]) - m) * r);
        db[i] += computed(dy[i]);
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      total_dw[i] += static_cast<double>(dw[i]);
      total_db[i] += static_cast<double>(db[i]);
    }
  }
  const auto add_to = [count](S* sums, const double* total) {
    for (std::int64_t i = 0; i < count; ++i) {
      sums[i] = stored<S>(static_cast<C>(static_cast<double>(computed(sums[i])) + total[i]));
    }
  };
  add_to(args.dweight.as<S>() + first, total_dw);
  add_to(args.dbias.as<S>() + first, total_db);
}

void forward(const LayerNormArgs& args, std::int64_t first, std::int64_t last) {
  kernels::visit_computed("layer_norm", args.x.dtype, [&]<typename S>() {
    for (std::int64_t row = first; row < last; ++row) forward_row<S>(args, row);
  });
}

void backward(const LayerNormBackwardArgs& args, std::int64_t first, std::int64_t last) {
  kernels::visit_computed("layer_norm", args.x.dtype, [&]<typename S>() {
    for (std::int64_t row = first; row < last; ++row) backward_row<S>(args, row);
  });
}

void weight_backward(const LayerNormWeightBackwardArgs& args, std::int64_t first,
                     std::int64_t last) {
  kernels::visit_computed("layer_norm", args.x.dtype, [&]<typename S>() {
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
void layer_norm_kernel<DeviceType::kCpu>(const LayerNormArgs& args, Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(forward);
  parallel_for(stream, args.x.shape[0], row_grain(args.x.shape[1]),
               [&](std::int64_t a, std::int64_t b) { run(args, a, b); });
}

template <>
void layer_norm_backward_kernel<DeviceType::kCpu>(const LayerNormBackwardArgs& args,
                                                  Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(backward);
  parallel_for(stream, args.x.shape[0], row_grain(args.x.shape[1]),
               [&](std::int64_t a, std::int64_t b) { run(args, a, b); });
}

template <>
void layer_norm_weight_backward_kernel<DeviceType::kCpu>(const LayerNormWeightBackwardArgs& args,
                                                         Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(weight_backward);
  const std::int64_t c = args.x.shape[1];
  parallel_for(stream, (c + kUnit - 1) / kUnit, 1, [&](std::int64_t a, std::int64_t b) {
    run(args, a * kUnit, std::min(b * kUnit, c));
  });
}

}  // namespace tessera::ops
#endif

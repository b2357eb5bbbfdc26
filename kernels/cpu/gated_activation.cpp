// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated_activation.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/activation-inl.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/gated_activation.hpp"

HWY_BEFORE_NAMESPACE();
namespace tessera::ops::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace vec = kernels::HWY_NAMESPACE;

/// Elements [first, first + count) of one row.
void forward(const GatedActivationArgs& args, std::int64_t row, std::int64_t first,
             std::int64_t count) {
  const std::int64_t width = args.y.shape[1];
  kernels::visit_computed("gated_activation", args.x.dtype, [&]<typename S>() {
    const hn::ScalableTag<kernels::Compute<S>> d;
    const S* const x = args.x.as<S>() + 2 * row * width + first;
    const S* const in[] = {x, x + width};
    S* const out[] = {args.y.as<S>() + row * width + first};
    vec::visit_activation(args.kind, [&]<Activation kKind>() {
      vec::map_vectors(d, count, in, out, [d](auto& v, auto& r) {
        auto a = v[0];
        auto slope = v[0];
        vec::activate<kKind>(d, v[0], a, slope);
        r[0] = hn::Mul(a, v[1]);
      });
    });
  });
}

void backward(const GatedActivationBackwardArgs& args, std::int64_t row, std::int64_t first,
              std::int64_t count) {
  const std::int64_t width = args.dy.shape[1];
  kernels::visit_computed("gated_activation", args.x.dtype, [&]<typename S>() {
    const hn::ScalableTag<kernels::Compute<S>> d;
    const S* const x = args.x.as<S>() + 2 * row * width + first;
    const S* const in[] = {x, x + width, args.dy.as<S>() + row * width + first};
    S* const dx = args.dx.as<S>() + 2 * row * width + first;
    S* const out[] = {dx, dx + width};
    vec::visit_activation(args.kind, [&]<Activation kKind>() {
      vec::map_vectors(d, count, in, out, [d](auto& v, auto& r) {
        auto a = v[0];
        auto slope = v[0];
        vec::activate<kKind>(d, v[0], a, slope);
        r[0] = hn::Mul(v[2], hn::Mul(v[1], slope));
        r[1] = hn::Mul(v[2], a);
      });
    });
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

constexpr std::int64_t kGrain = 1 << 12;

/// run(row, first, count) over all rows of `width` elements, cut where the threads' shares end.
template <typename F>
void for_each_run(Stream& stream, std::int64_t rows, std::int64_t width, F&& run) {
  parallel_for(stream, rows * width, kGrain, [&](std::int64_t i, std::int64_t j) {
    while (i < j) {
      const std::int64_t first = i % width;
      const std::int64_t count = std::min(width - first, j - i);
      run(i / width, first, count);
      i += count;
    }
  });
}

}  // namespace

template <>
void gated_activation_kernel<DeviceType::kCpu>(const GatedActivationArgs& args, Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(forward);
  for_each_run(stream, args.y.shape[0], args.y.shape[1],
               [&](std::int64_t row, std::int64_t first, std::int64_t count) {
                 run(args, row, first, count);
               });
}

template <>
void gated_activation_backward_kernel<DeviceType::kCpu>(const GatedActivationBackwardArgs& args,
                                                        Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(backward);
  for_each_run(stream, args.dy.shape[0], args.dy.shape[1],
               [&](std::int64_t row, std::int64_t first, std::int64_t count) {
                 run(args, row, first, count);
               });
}

}  // namespace tessera::ops
#endif

// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/convert.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/cpu/vector-inl.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/softmax.hpp"

HWY_BEFORE_NAMESPACE();
namespace tessera::ops::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace vec = kernels::HWY_NAMESPACE;
using kernels::Compute;
using kernels::computed;
using kernels::lane_sum;
using kernels::stored;

constexpr std::int64_t kPart = 256;  ///< elements whose exponentials are held at once

/// e^(x - shift) of up to kPart elements.
template <typename S, typename C>
HWY_INLINE void exponentials(const S* x, C shift, std::int64_t count, C* out) {
  const hn::ScalableTag<C> d;
  C shifted[kPart];
  for (std::int64_t i = 0; i < count; ++i) shifted[i] = computed(x[i]) - shift;
  const C* const in[] = {shifted};
  C* const to[] = {out};
  vec::map_vectors(d, count, in, to, [d](auto& v, auto& r) { r[0] = vec::exp(d, v[0]); });
}

template <typename S>
HWY_INLINE void forward_row(const S* x, S* y, std::int64_t width) {
  using C = Compute<S>;
  const C most = kernels::lane_max<C>(width, [x](std::int64_t i) { return computed(x[i]); });
  C part[kPart];
  double sum = 0.0;
  for (std::int64_t i = 0; i < width; i += kPart) {
    const std::int64_t count = std::min(kPart, width - i);
    exponentials(x + i, most, count, part);
    sum += static_cast<double>(lane_sum<C>(count, [&part](std::int64_t k) { return part[k]; }));
  }
  const C factor = C{1} / static_cast<C>(sum);
  for (std::int64_t i = 0; i < width; i += kPart) {
    const std::int64_t count = std::min(kPart, width - i);
    exponentials(x + i, most, count, part);
    for (std::int64_t k = 0; k < count; ++k) y[i + k] = stored<S>(part[k] * factor);
  }
}

template <typename S>
HWY_INLINE void backward_row(const S* y, const S* dy, S* dx, std::int64_t width) {
  using C = Compute<S>;
  const C mean =
      lane_sum<C>(width, [=](std::int64_t i) { return computed(y[i]) * computed(dy[i]); });
  for (std::int64_t i = 0; i < width; ++i) {
    dx[i] = stored<S>(computed(y[i]) * (computed(dy[i]) - mean));
  }
}

void forward(const SoftmaxArgs& args, std::int64_t first, std::int64_t last) {
  const std::int64_t width = args.x.shape[1];
  kernels::visit_computed("softmax", args.x.dtype, [&]<typename S>() {
    for (std::int64_t row = first; row < last; ++row) {
      forward_row(args.x.as<S>() + row * width, args.y.as<S>() + row * width, width);
    }
  });
}

void backward(const SoftmaxBackwardArgs& args, std::int64_t first, std::int64_t last) {
  const std::int64_t width = args.y.shape[1];
  kernels::visit_computed("softmax", args.y.dtype, [&]<typename S>() {
    for (std::int64_t row = first; row < last; ++row) {
      backward_row(args.y.as<S>() + row * width, args.dy.as<S>() + row * width,
                   args.dx.as<S>() + row * width, width);
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

std::int64_t row_grain(std::int64_t width) { return 1 + (1 << 12) / width; }

}  // namespace

template <>
void softmax_kernel<DeviceType::kCpu>(const SoftmaxArgs& args, Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(forward);
  parallel_for(stream, args.x.shape[0], row_grain(args.x.shape[1]),
               [&](std::int64_t a, std::int64_t b) { run(args, a, b); });
}

template <>
void softmax_backward_kernel<DeviceType::kCpu>(const SoftmaxBackwardArgs& args, Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(backward);
  parallel_for(stream, args.y.shape[0], row_grain(args.y.shape[1]),
               [&](std::int64_t a, std::int64_t b) { run(args, a, b); });
}

}  // namespace tessera::ops
#endif

// SPDX-License-Identifier: Apache-2.0
// Plain loops, compiled for each of Highway's targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include "kernels/cpu/convert.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/rope.hpp"

HWY_BEFORE_NAMESPACE();
namespace tessera::ops::HWY_NAMESPACE {
namespace {

using kernels::Compute;
using kernels::computed;
using kernels::stored;

/// One head: `sign` is the direction.
template <typename S, typename C>
HWY_INLINE void turn(const S* x, const C* cos, const C* sin, C sign, S* y, std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const C a = computed(x[i]);
    const C b = computed(x[i + half]);
    const C s = sign * sin[i];
    y[i] = stored<S>(a * cos[i] - b * s);
    y[i + half] = stored<S>(b * cos[i] + a * s);
  }
}

/// Tokens [first, last) of all B T.
void turn_tokens(const RopeArgs& args, std::int64_t first, std::int64_t last) {
  const Shape& shape = args.x.shape;
  const std::int64_t half = shape[3] / 2;
  kernels::visit_computed("rope", args.x.dtype, [&]<typename S>() {
    using C = Compute<S>;
    const C sign = args.rotation == Rotation::kForward ? C{1} : C{-1};
    for (std::int64_t token = first; token < last; ++token) {
      const std::int64_t b = token / shape[1];
      const std::int64_t t = token % shape[1];
      const std::int64_t row = args.positions.as<std::int32_t>()[token] * half;
      const S* const x = args.x.as<S>() + b * args.x.strides[0] + t * args.x.strides[1];
      S* const y = args.y.as<S>() + b * args.y.strides[0] + t * args.y.strides[1];
      for (std::int64_t h = 0; h < shape[2]; ++h) {
        turn<S, C>(x + h * args.x.strides[2], args.cos.as<C>() + row, args.sin.as<C>() + row, sign,
                   y + h * args.y.strides[2], half);
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

HWY_EXPORT(turn_tokens);

}  // namespace

template <>
void rope_kernel<DeviceType::kCpu>(const RopeArgs& args, Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(turn_tokens);
  const Shape& shape = args.x.shape;
  parallel_for(stream, shape[0] * shape[1], 1 + (1 << 13) / (shape[2] * shape[3]),
               [&](std::int64_t a, std::int64_t b) { run(args, a, b); });
}

}  // namespace tessera::ops
#endif

// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include "kernels/cpu/activation-inl.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/activation.hpp"

HWY_BEFORE_NAMESPACE();
namespace tessera::ops::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace vec = kernels::HWY_NAMESPACE;

void forward(const ActivationArgs& args, std::int64_t first, std::int64_t count) {
  kernels::visit_computed("activation", args.x.dtype, [&]<typename S>() {
    const hn::ScalableTag<kernels::Compute<S>> d;
    const S* const in[] = {args.x.as<S>() + first};
    S* const out[] = {args.y.as<S>() + first};
    vec::visit_activation(args.kind, [&]<Activation kKind>() {
      vec::map_vectors(d, count, in, out, [d](auto& v, auto& r) {
        auto slope = v[0];
        vec::activate<kKind>(d, v[0], r[0], slope);
      });
    });
  });
}

void backward(const ActivationBackwardArgs& args, std::int64_t first, std::int64_t count) {
  kernels::visit_computed("activation", args.x.dtype, [&]<typename S>() {
    const hn::ScalableTag<kernels::Compute<S>> d;
    const S* const in[] = {args.x.as<S>() + first, args.dy.as<S>() + first};
    S* const out[] = {args.dx.as<S>() + first};
    vec::visit_activation(args.kind, [&]<Activation kKind>() {
      vec::map_vectors(d, count, in, out, [d](auto& v, auto& r) {
        auto y = v[0];
        auto slope = v[0];
        vec::activate<kKind>(d, v[0], y, slope);
        r[0] = hn::Mul(v[1], slope);
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

}  // namespace

template <>
void activation_kernel<DeviceType::kCpu>(const ActivationArgs& args, Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(forward);
  parallel_for(stream, args.x.numel(), kGrain,
               [&](std::int64_t i, std::int64_t j) { run(args, i, j - i); });
}

template <>
void activation_backward_kernel<DeviceType::kCpu>(const ActivationBackwardArgs& args,
                                                  Stream& stream) {
  const auto run = HWY_DYNAMIC_DISPATCH(backward);
  parallel_for(stream, args.x.numel(), kGrain,
               [&](std::int64_t i, std::int64_t j) { run(args, i, j - i); });
}

}  // namespace tessera::ops
#endif

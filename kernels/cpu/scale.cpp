// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/scale.hpp"

#include "kernels/cpu/convert.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

using kernels::Compute;

template <typename S>
[[gnu::always_inline]] inline void scale(const S* x, S* y, Compute<S> factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = kernels::stored<S>(factor * kernels::computed(x[i]));
  }
}

TESSERA_MULTIVERSION void scale_run(const float* x, float* y, float factor, std::int64_t n) {
  scale(x, y, factor, n);
}
TESSERA_MULTIVERSION void scale_run(const double* x, double* y, double factor, std::int64_t n) {
  scale(x, y, factor, n);
}
TESSERA_MULTIVERSION void scale_run(const bf16* x, bf16* y, float factor, std::int64_t n) {
  scale(x, y, factor, n);
}
TESSERA_MULTIVERSION void scale_run(const f16* x, f16* y, float factor, std::int64_t n) {
  scale(x, y, factor, n);
}

}  // namespace

template <>
void scale_kernel<DeviceType::kCpu>(const ScaleArgs& args, Stream& stream) {
  kernels::visit_computed("scale", args.x.dtype, [&]<typename S>() {
    parallel_for(stream, args.x.numel(), 1 << 14, [&](std::int64_t i, std::int64_t j) {
      scale_run(args.x.as<S>() + i, args.y.as<S>() + i, static_cast<Compute<S>>(args.factor),
                j - i);
    });
  });
}

}  // namespace tessera::ops

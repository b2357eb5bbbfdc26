// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/scale.hpp"

#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

TESSERA_MULTIVERSION void scale_run(const float* x, float* y, float factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = factor * x[i];
}

TESSERA_MULTIVERSION void scale_run(const double* x, double* y, double factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = factor * x[i];
}

}  // namespace

template <>
void scale_kernel<DeviceType::kCpu>(const ScaleArgs& args, Stream& stream) {
  kernels::visit_f64_f32("scale", args.x.dtype, [&]<typename T>() {
    parallel_for(stream, args.x.numel(), 1 << 14, [&](std::int64_t i, std::int64_t j) {
      scale_run(args.x.as<T>() + i, args.y.as<T>() + i, static_cast<T>(args.factor), j - i);
    });
  });
}

}  // namespace tessera::ops

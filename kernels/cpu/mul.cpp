// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/mul.hpp"

#include "kernels/cpu/convert.hpp"
#include "kernels/cpu/visit.hpp"
#include "kernels/cpu/walk.hpp"

namespace tessera::ops {
namespace {

constexpr std::int64_t kGrain = 1 << 14;

template <typename T>
[[gnu::always_inline]] inline T product_of(T a, T b) {
  if constexpr (kernels::is_low<T>) {
    return kernels::narrowed<T>(kernels::widened(a) * kernels::widened(b));
  } else {
    return a * b;
  }
}

template <typename T>
[[gnu::always_inline]] inline void mul(const T* a, std::int64_t a_stride, const T* b,
                                       std::int64_t b_stride, T* y, std::int64_t count) {
  if (a_stride == 1 && b_stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = product_of(a[i], b[i]);
  } else if (a_stride == 1 && b_stride == 0) {
    const T constant = *b;
    for (std::int64_t i = 0; i < count; ++i) y[i] = product_of(a[i], constant);
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i] = product_of(a[i * a_stride], b[i * b_stride]);
  }
}

TESSERA_MULTIVERSION void mul_run(const float* a, std::int64_t a_stride, const float* b,
                                  std::int64_t b_stride, float* y, std::int64_t n) {
  mul(a, a_stride, b, b_stride, y, n);
}
TESSERA_MULTIVERSION void mul_run(const double* a, std::int64_t a_stride, const double* b,
                                  std::int64_t b_stride, double* y, std::int64_t n) {
  mul(a, a_stride, b, b_stride, y, n);
}
TESSERA_MULTIVERSION void mul_run(const bf16* a, std::int64_t a_stride, const bf16* b,
                                  std::int64_t b_stride, bf16* y, std::int64_t n) {
  mul(a, a_stride, b, b_stride, y, n);
}
TESSERA_MULTIVERSION void mul_run(const f16* a, std::int64_t a_stride, const f16* b,
                                  std::int64_t b_stride, f16* y, std::int64_t n) {
  mul(a, a_stride, b, b_stride, y, n);
}

}  // namespace

template <>
void mul_kernel<DeviceType::kCpu>(const MulArgs& args, Stream& stream) {
  kernels::visit_computed("mul", args.y.dtype, [&]<typename T>() {
    const auto walk =
        kernels::merged_walk<3>(args.y.shape, {args.a.strides, args.b.strides, args.y.strides});
    const int last = walk.last();
    kernels::walk_runs(
        stream, walk, kGrain, [&](const kernels::Offsets<3>& offsets, std::int64_t count) {
          mul_run(args.a.as<T>() + offsets[0], walk.strides[0][last], args.b.as<T>() + offsets[1],
                  walk.strides[1][last], args.y.as<T>() + offsets[2], count);
        });
  });
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// Sums are computed in f32 or f64; a low float is widened and the sum rounded once.
#include "tessera/ops/add.hpp"

#include "kernels/cpu/convert.hpp"
#include "kernels/cpu/visit.hpp"
#include "kernels/cpu/walk.hpp"

namespace tessera::ops {
namespace {

constexpr std::int64_t kGrain = 1 << 14;

using kernels::Compute;

template <typename T>
[[gnu::always_inline]] inline T sum_of(T a, T b) {
  if constexpr (kernels::is_low<T>) {
    return kernels::narrowed<T>(kernels::widened(a) + kernels::widened(b));
  } else {
    return a + b;
  }
}

template <typename T>
[[gnu::always_inline]] inline void add(const T* a, std::int64_t a_stride, const T* b,
                                       std::int64_t b_stride, T* y, std::int64_t count) {
  if (a_stride == 1 && b_stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = sum_of(a[i], b[i]);
  } else if (a_stride == 1 && b_stride == 0) {
    const T constant = *b;
    for (std::int64_t i = 0; i < count; ++i) y[i] = sum_of(a[i], constant);
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i] = sum_of(a[i * a_stride], b[i * b_stride]);
  }
}

TESSERA_MULTIVERSION void add_run(const float* a, std::int64_t a_stride, const float* b,
                                  std::int64_t b_stride, float* y, std::int64_t n) {
  add(a, a_stride, b, b_stride, y, n);
}
TESSERA_MULTIVERSION void add_run(const double* a, std::int64_t a_stride, const double* b,
                                  std::int64_t b_stride, double* y, std::int64_t n) {
  add(a, a_stride, b, b_stride, y, n);
}
TESSERA_MULTIVERSION void add_run(const bf16* a, std::int64_t a_stride, const bf16* b,
                                  std::int64_t b_stride, bf16* y, std::int64_t n) {
  add(a, a_stride, b, b_stride, y, n);
}
TESSERA_MULTIVERSION void add_run(const f16* a, std::int64_t a_stride, const f16* b,
                                  std::int64_t b_stride, f16* y, std::int64_t n) {
  add(a, a_stride, b, b_stride, y, n);
}

template <typename T>
void add_all(const AddArgs& args, const Stream& stream) {
  const auto walk =
      kernels::merged_walk<3>(args.y.shape, {args.a.strides, args.b.strides, args.y.strides});
  const int last = walk.last();
  kernels::walk_runs(
      stream, walk, kGrain, [&](const kernels::Offsets<3>& offsets, std::int64_t count) {
        add_run(args.a.as<T>() + offsets[0], walk.strides[0][last], args.b.as<T>() + offsets[1],
                walk.strides[1][last], args.y.as<T>() + offsets[2], count);
      });
}

template <typename X, typename Y>
[[gnu::always_inline]] inline void axpy(const X* x, Y* y, Compute<Y> alpha, std::int64_t count) {
  using C = Compute<Y>;
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = kernels::converted<Y>(kernels::converted<C>(y[i]) + alpha * kernels::converted<C>(x[i]));
  }
}

TESSERA_MULTIVERSION void axpy_run(const float* x, float* y, float alpha, std::int64_t n) {
  axpy(x, y, alpha, n);
}
TESSERA_MULTIVERSION void axpy_run(const double* x, double* y, double alpha, std::int64_t n) {
  axpy(x, y, alpha, n);
}
TESSERA_MULTIVERSION void axpy_run(const float* x, double* y, double alpha, std::int64_t n) {
  axpy(x, y, alpha, n);
}
TESSERA_MULTIVERSION void axpy_run(const bf16* x, float* y, float alpha, std::int64_t n) {
  axpy(x, y, alpha, n);
}
TESSERA_MULTIVERSION void axpy_run(const f16* x, float* y, float alpha, std::int64_t n) {
  axpy(x, y, alpha, n);
}
TESSERA_MULTIVERSION void axpy_run(const bf16* x, bf16* y, float alpha, std::int64_t n) {
  axpy(x, y, alpha, n);
}
TESSERA_MULTIVERSION void axpy_run(const f16* x, f16* y, float alpha, std::int64_t n) {
  axpy(x, y, alpha, n);
}

/// Calls f.operator()<X, Y>() for the pairs of dtypes that axpy_run is compiled for.
template <typename F>
void visit_axpy(DType x, DType y, F&& f) {
  if (x == DType::kF32 && y == DType::kF32) return f.template operator()<float, float>();
  if (x == DType::kF64 && y == DType::kF64) return f.template operator()<double, double>();
  if (x == DType::kF32 && y == DType::kF64) return f.template operator()<float, double>();
  if (x == DType::kBF16 && y == DType::kF32) return f.template operator()<bf16, float>();
  if (x == DType::kF16 && y == DType::kF32) return f.template operator()<f16, float>();
  if (x == DType::kBF16 && y == DType::kBF16) return f.template operator()<bf16, bf16>();
  if (x == DType::kF16 && y == DType::kF16) return f.template operator()<f16, f16>();
  throw Error(ErrorCode::kDType,
              fmt::format("axpy: {} does not add to {}; cast x first", to_string(x), to_string(y)));
}

}  // namespace

template <>
void add_kernel<DeviceType::kCpu>(const AddArgs& args, Stream& stream) {
  if (args.y.dtype == DType::kBF16) return add_all<bf16>(args, stream);
  if (args.y.dtype == DType::kF16) return add_all<f16>(args, stream);
  kernels::visit_f64_f32("add", args.y.dtype, [&]<typename T>() { add_all<T>(args, stream); });
}

template <>
void axpy_kernel<DeviceType::kCpu>(const AxpyArgs& args, Stream& stream) {
  visit_axpy(args.x.dtype, args.y.dtype, [&]<typename X, typename Y>() {
    parallel_for(stream, args.y.numel(), kGrain, [&](std::int64_t i, std::int64_t j) {
      axpy_run(args.x.as<X>() + i, args.y.as<Y>() + i, static_cast<Compute<Y>>(args.alpha), j - i);
    });
  });
}

}  // namespace tessera::ops

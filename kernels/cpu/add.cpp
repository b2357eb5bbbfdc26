// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/add.hpp"

#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

template <typename T>
void add_run(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride, T* y,
             std::int64_t count) {
  if (a_stride == 1 && b_stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i] = a[i * a_stride] + b[i * b_stride];
  }
}

TESSERA_MULTIVERSION void add_run_f32(const float* a, std::int64_t a_stride, const float* b,
                                      std::int64_t b_stride, float* y, std::int64_t count) {
  add_run(a, a_stride, b, b_stride, y, count);
}

TESSERA_MULTIVERSION void add_run_f64(const double* a, std::int64_t a_stride, const double* b,
                                      std::int64_t b_stride, double* y, std::int64_t count) {
  add_run(a, a_stride, b, b_stride, y, count);
}

void add_typed_run(const float* a, std::int64_t as, const float* b, std::int64_t bs, float* y,
                   std::int64_t n) {
  add_run_f32(a, as, b, bs, y, n);
}
void add_typed_run(const double* a, std::int64_t as, const double* b, std::int64_t bs, double* y,
                   std::int64_t n) {
  add_run_f64(a, as, b, bs, y, n);
}

/// Start of row `row` of a broadcast operand.
std::int64_t row_offset(const TensorView& view, std::int64_t row) {
  std::int64_t offset = 0;
  for (int d = view.shape.rank() - 2; d >= 0; --d) {
    offset += row % view.shape[d] * view.strides[d];
    row /= view.shape[d];
  }
  return offset;
}

template <typename T>
void add_rows(const AddArgs& args, const Stream& stream) {
  if (args.a.is_contiguous() && args.b.is_contiguous()) {
    parallel_for(stream, args.y.numel(), 1 << 14, [&](std::int64_t i, std::int64_t j) {
      add_typed_run(args.a.as<T>() + i, 1, args.b.as<T>() + i, 1, args.y.as<T>() + i, j - i);
    });
    return;
  }
  const std::int64_t run = args.y.shape.back(0);
  parallel_for(stream, args.y.numel() / run, 1 + (1 << 14) / run,
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t row = first; row < last; ++row) {
                   add_typed_run(args.a.as<T>() + row_offset(args.a, row), args.a.strides.back(0),
                                 args.b.as<T>() + row_offset(args.b, row), args.b.strides.back(0),
                                 args.y.as<T>() + row * run, run);
                 }
               });
}

TESSERA_MULTIVERSION void axpy_run(const float* x, float* y, float alpha, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] += alpha * x[i];
}

TESSERA_MULTIVERSION void axpy_run(const double* x, double* y, double alpha, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] += alpha * x[i];
}

TESSERA_MULTIVERSION void axpy_run(const bf16* x, float* y, float alpha, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] += alpha * static_cast<float>(x[i]);
}

template <typename X, typename Y>
void axpy_all(const AxpyArgs& args, const Stream& stream) {
  parallel_for(stream, args.y.numel(), 1 << 14, [&](std::int64_t i, std::int64_t j) {
    axpy_run(args.x.as<X>() + i, args.y.as<Y>() + i, static_cast<Y>(args.alpha), j - i);
  });
}

}  // namespace

template <>
void add_kernel<DeviceType::kCpu>(const AddArgs& args, Stream& stream) {
  kernels::visit_f64_f32("add", args.y.dtype, [&]<typename T>() { add_rows<T>(args, stream); });
}

template <>
void axpy_kernel<DeviceType::kCpu>(const AxpyArgs& args, Stream& stream) {
  if (args.x.dtype == DType::kBF16 && args.y.dtype == DType::kF32) {
    return axpy_all<bf16, float>(args, stream);
  }
  if (args.x.dtype != args.y.dtype) {
    throw Error(ErrorCode::kDType, fmt::format("axpy: {} does not add to {}",
                                               to_string(args.x.dtype), to_string(args.y.dtype)));
  }
  kernels::visit_f64_f32("axpy", args.y.dtype, [&]<typename T>() { axpy_all<T, T>(args, stream); });
}

}  // namespace tessera::ops

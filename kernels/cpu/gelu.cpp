// SPDX-License-Identifier: Apache-2.0
// 0.5 (1 + tanh u) = sigmoid(2u), which keeps its relative precision in the negative tail.
#include "tessera/ops/gelu.hpp"

#include "kernels/cpu/math.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

constexpr double kTwoRootTwoOverPi = 1.5957691216057308;  // 2 sqrt(2 / pi)
constexpr double kCubic = 0.044715;

template <typename T>
[[gnu::always_inline]] inline T gate(T x) {
  const T u = static_cast<T>(kTwoRootTwoOverPi) * x * (T{1} + static_cast<T>(kCubic) * x * x);
  return T{1} / (T{1} + kernels::fast_exp(-u));
}

template <typename T>
[[gnu::always_inline]] inline void forward(const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * gate(x[i]);
}

template <typename T>
[[gnu::always_inline]] inline void backward(const T* x, const T* dy, T* dx, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T s = gate(x[i]);
    const T du =
        static_cast<T>(kTwoRootTwoOverPi) * (T{1} + static_cast<T>(3.0 * kCubic) * x[i] * x[i]);
    dx[i] = dy[i] * (s + x[i] * s * (T{1} - s) * du);
  }
}

TESSERA_MULTIVERSION void forward_run(const float* x, float* y, std::int64_t n) {
  forward(x, y, n);
}
TESSERA_MULTIVERSION void forward_run(const double* x, double* y, std::int64_t n) {
  forward(x, y, n);
}
TESSERA_MULTIVERSION void backward_run(const float* x, const float* dy, float* dx, std::int64_t n) {
  backward(x, dy, dx, n);
}
TESSERA_MULTIVERSION void backward_run(const double* x, const double* dy, double* dx,
                                       std::int64_t n) {
  backward(x, dy, dx, n);
}

}  // namespace

template <>
void gelu_kernel<DeviceType::kCpu>(const GeluArgs& args, Stream& stream) {
  kernels::visit_f64_f32("gelu", args.x.dtype, [&]<typename T>() {
    parallel_for(stream, args.x.numel(), 1 << 12, [&](std::int64_t i, std::int64_t j) {
      forward_run(args.x.as<T>() + i, args.y.as<T>() + i, j - i);
    });
  });
}

template <>
void gelu_backward_kernel<DeviceType::kCpu>(const GeluBackwardArgs& args, Stream& stream) {
  kernels::visit_f64_f32("gelu", args.x.dtype, [&]<typename T>() {
    parallel_for(stream, args.x.numel(), 1 << 12, [&](std::int64_t i, std::int64_t j) {
      backward_run(args.x.as<T>() + i, args.dy.as<T>() + i, args.dx.as<T>() + i, j - i);
    });
  });
}

}  // namespace tessera::ops

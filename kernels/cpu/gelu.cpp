// SPDX-License-Identifier: Apache-2.0
// 0.5 (1 + tanh(u / 2)) = 1 / (1 + e^-u), which keeps its relative precision in the negative tail.
// In f32 the exponent u is carried in two floats: e^-u would multiply the rounding of u by u.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gelu.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include <cmath>

#include "kernels/cpu/vector-inl.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/gelu.hpp"

HWY_BEFORE_NAMESPACE();
namespace tessera::ops::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace vec = kernels::HWY_NAMESPACE;

constexpr double kLinear = 1.5957691216057308;  // 2 sqrt(2 / pi)
constexpr double kCubic = 0.044715;

#if HWY_TARGET == HWY_SCALAR
template <class D, hwy::EnableIf<hwy::IsSame<hn::TFromD<D>, float>()>* = nullptr>
HWY_INLINE hn::Vec<D> exp_minus_u(D d, hn::Vec<D> x) {
  const auto value = static_cast<double>(hn::GetLane(x));
  return hn::Set(d,
                 static_cast<float>(std::exp(-kLinear * value * (1.0 + kCubic * value * value))));
}
#else
/// u = x (a + b x^2) as a sum of two floats: each product and sum brings its own rounding error
/// (Dekker's and Knuth's exact transformations; Ogita, Rump and Oishi, SIAM J. Sci. Comput. 2005).
template <class D, class V>
HWY_INLINE void exponent(D d, V x, V& high, V& low) {
  constexpr auto kA = static_cast<float>(kLinear);
  constexpr auto kB = static_cast<float>(kLinear * kCubic);
  const V a = hn::Set(d, kA);
  const V b = hn::Set(d, kB);
  const V square = hn::Mul(x, x);
  const V square_low = hn::MulSub(x, x, square);
  const V p = hn::Mul(b, square);
  const V p_low = hn::MulAdd(b, square_low, hn::MulSub(b, square, p));
  const V slope = hn::Add(a, p);
  const V back = hn::Sub(slope, a);
  V slope_low = hn::Add(hn::Sub(a, hn::Sub(slope, back)), hn::Sub(p, back));
  slope_low = hn::Add(hn::Add(slope_low, p_low),
                      hn::MulAdd(hn::Set(d, static_cast<float>(kLinear * kCubic - kB)), square,
                                 hn::Set(d, static_cast<float>(kLinear - kA))));
  high = hn::Mul(x, slope);
  low = hn::MulAdd(x, slope_low, hn::MulSub(x, slope, high));
}

template <class D, hwy::EnableIf<hwy::IsSame<hn::TFromD<D>, float>()>* = nullptr>
HWY_INLINE hn::Vec<D> exp_minus_u(D d, hn::Vec<D> x) {
  // Beyond +-12 the gate is 0 or 1 in f32; the bound keeps the low part finite. NaN stays.
  x = vec::clamped(x, hn::Set(d, -12.0F), hn::Set(d, 12.0F));
  hn::Vec<D> high, low;
  exponent(d, x, high, low);
  return vec::exp(d, hn::Neg(high), hn::Neg(low));
}
#endif

template <class D, hwy::EnableIf<hwy::IsSame<hn::TFromD<D>, double>()>* = nullptr>
HWY_INLINE hn::Vec<D> exp_minus_u(D d, hn::Vec<D> x) {
  const auto slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, -kLinear * kCubic), hn::Set(d, -kLinear));
  return vec::exp(d, hn::Mul(x, slope));
}

/// s = 1 / (1 + e) for e = e^-u. Results below 1e-37 are 0 in f32, where e is infinite.
template <class D>
HWY_INLINE hn::Vec<D> gate(D d, hn::Vec<D> e) {
  const auto one = hn::Set(d, hn::TFromD<D>{1});
  return hn::Div(one, hn::Add(one, e));
}

template <typename T>
void forward(const T* x, T* y, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const T* const in[] = {x};
  T* const out[] = {y};
  vec::map_vectors(d, count, in, out,
                   [d](auto& v, auto& r) { r[0] = hn::Mul(v[0], gate(d, exp_minus_u(d, v[0]))); });
}

template <typename T>
void backward(const T* x, const T* dy, T* dx, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const T* const in[] = {x, dy};
  T* const out[] = {dx};
  vec::map_vectors(d, count, in, out, [d](auto& v, auto& r) {
    const auto e = exp_minus_u(d, v[0]);
    const auto s = gate(d, e);
    const auto du =
        hn::MulAdd(hn::Mul(v[0], v[0]), hn::Set(d, static_cast<T>(3.0 * kLinear * kCubic)),
                   hn::Set(d, static_cast<T>(kLinear)));
    // 1 - s, which would cancel where s is near 1; x and the slope multiply its error.
    const auto rest = hn::IfThenElse(hn::Eq(s, hn::Zero(d)), hn::Set(d, T{1}), hn::Mul(e, s));
    r[0] = hn::Mul(v[1], hn::Mul(s, hn::MulAdd(hn::Mul(v[0], rest), du, hn::Set(d, T{1}))));
  });
}

void forward_f32(const float* x, float* y, std::int64_t n) { forward(x, y, n); }
void forward_f64(const double* x, double* y, std::int64_t n) { forward(x, y, n); }
void backward_f32(const float* x, const float* dy, float* dx, std::int64_t n) {
  backward(x, dy, dx, n);
}
void backward_f64(const double* x, const double* dy, double* dx, std::int64_t n) {
  backward(x, dy, dx, n);
}

}  // namespace
}  // namespace tessera::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::ops {
namespace {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_f64);

constexpr std::int64_t kGrain = 1 << 12;

template <typename T>
auto forward_run() {
  if constexpr (sizeof(T) == 4) {
    return HWY_DYNAMIC_DISPATCH(forward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(forward_f64);
  }
}

template <typename T>
auto backward_run() {
  if constexpr (sizeof(T) == 4) {
    return HWY_DYNAMIC_DISPATCH(backward_f32);
  } else {
    return HWY_DYNAMIC_DISPATCH(backward_f64);
  }
}

}  // namespace

template <>
void gelu_kernel<DeviceType::kCpu>(const GeluArgs& args, Stream& stream) {
  kernels::visit_f64_f32("gelu", args.x.dtype, [&]<typename T>() {
    const auto run = forward_run<T>();
    parallel_for(stream, args.x.numel(), kGrain, [&](std::int64_t i, std::int64_t j) {
      run(args.x.as<T>() + i, args.y.as<T>() + i, j - i);
    });
  });
}

template <>
void gelu_backward_kernel<DeviceType::kCpu>(const GeluBackwardArgs& args, Stream& stream) {
  kernels::visit_f64_f32("gelu", args.x.dtype, [&]<typename T>() {
    const auto run = backward_run<T>();
    parallel_for(stream, args.x.numel(), kGrain, [&](std::int64_t i, std::int64_t j) {
      run(args.x.as<T>() + i, args.dy.as<T>() + i, args.dx.as<T>() + i, j - i);
    });
  });
}

}  // namespace tessera::ops
#endif

// SPDX-License-Identifier: Apache-2.0
// The activation functions and their slopes on vectors, compiled once per instruction set. To be
// included after hwy/foreach_target.h.
#if defined(TESSERA_KERNELS_CPU_ACTIVATION_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_ACTIVATION_INL_HPP_
#undef TESSERA_KERNELS_CPU_ACTIVATION_INL_HPP_
#else
#define TESSERA_KERNELS_CPU_ACTIVATION_INL_HPP_
#endif

#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/vector-inl.hpp"
#include "tessera/ops/activation.hpp"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using ops::Activation;

constexpr double kGeluLinear = 1.5957691216057308;  // 2 sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

// GELU's gate 0.5 (1 + tanh(u / 2)) = 1 / (1 + e^-u) keeps its relative precision in the negative
// tail. In f32 the exponent u is carried in two floats: e^-u would multiply the rounding of u by u.
#if HWY_TARGET == HWY_SCALAR
template <class D, hwy::EnableIf<hwy::IsSame<hn::TFromD<D>, float>()>* = nullptr>
HWY_INLINE hn::Vec<D> exp_minus_u(D d, hn::Vec<D> x) {
  const auto value = static_cast<double>(hn::GetLane(x));
  const double slope = kGeluLinear * (1.0 + kGeluCubic * value * value);
  return hn::Set(d, static_cast<float>(std::exp(-slope * value)));
}
#else
/// u = x (a + b x^2) as a sum of two floats: each product and sum brings its own rounding error
/// (Dekker's and Knuth's exact transformations; Ogita, Rump and Oishi, SIAM J. Sci. Comput. 2005).
template <class D, class V>
HWY_INLINE void gelu_exponent(D d, V x, V& high, V& low) {
  constexpr auto kA = static_cast<float>(kGeluLinear);
  constexpr auto kB = static_cast<float>(kGeluLinear * kGeluCubic);
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
                      hn::MulAdd(hn::Set(d, static_cast<float>(kGeluLinear * kGeluCubic - kB)),
                                 square, hn::Set(d, static_cast<float>(kGeluLinear - kA))));
  high = hn::Mul(x, slope);
  low = hn::MulAdd(x, slope_low, hn::MulSub(x, slope, high));
}

template <class D, hwy::EnableIf<hwy::IsSame<hn::TFromD<D>, float>()>* = nullptr>
HWY_INLINE hn::Vec<D> exp_minus_u(D d, hn::Vec<D> x) {
  // Beyond +-12 the gate is 0 or 1 in f32; the bound keeps the low part finite. NaN stays.
  x = clamped(x, hn::Set(d, -12.0F), hn::Set(d, 12.0F));
  hn::Vec<D> high, low;
  gelu_exponent(d, x, high, low);
  return exp(d, hn::Neg(high), hn::Neg(low));
}
#endif

template <class D, hwy::EnableIf<hwy::IsSame<hn::TFromD<D>, double>()>* = nullptr>
HWY_INLINE hn::Vec<D> exp_minus_u(D d, hn::Vec<D> x) {
  const auto slope =
      hn::MulAdd(hn::Mul(x, x), hn::Set(d, -kGeluLinear * kGeluCubic), hn::Set(d, -kGeluLinear));
  return exp(d, hn::Mul(x, slope));
}

/// e^(-x^2 / 2) and Phi(x) = 0.5 erfc(-x / sqrt(2)), the latter with its relative precision in the
/// negative tail. f32: erfc(z) = t e^(P(t) - z^2), t = 1 / (1 + z / 2), with the Chebyshev fit of
/// Press et al., Numerical Recipes, 6.2 (fractional error below 1.2e-7).
template <class D, class V, hwy::EnableIf<hwy::IsSame<hn::TFromD<D>, float>()>* = nullptr>
HWY_INLINE void normal(D d, V x, V& bell, V& phi) {
  const auto c = [d](double value) { return hn::Set(d, static_cast<float>(value)); };
  const V bounded = clamped(x, c(-14.5), c(14.5));
  const V half = hn::Mul(bounded, c(0.5));
  const V square = hn::Mul(bounded, half);
  const V square_low = hn::MulSub(bounded, half, square);
  bell = exp(d, hn::Neg(square), hn::Neg(square_low));
  const V t = hn::Div(c(1.0), hn::MulAdd(hn::Abs(bounded), c(0.5 * 0.70710678118654752), c(1.0)));
  V p = c(0.17087277);
  for (const double k : {-0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
                         0.37409196, 1.00002368, -1.26551223}) {
    p = hn::MulAdd(p, t, c(k));
  }
  const V tail = hn::Mul(hn::Mul(c(0.5), t), hn::Mul(bell, exp(d, p)));
  phi = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(c(1.0), tail));
}
template <class D, class V, hwy::EnableIf<hwy::IsSame<hn::TFromD<D>, double>()>* = nullptr>
HWY_INLINE void normal(D d, V x, V& bell, V& phi) {
  // The f64 path is there to verify others: the library's erfc, lane by lane.
  HWY_ALIGN double lanes[hn::MaxLanes(D())];
  HWY_ALIGN double bells[hn::MaxLanes(D())];
  hn::Store(x, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    bells[i] = std::exp(-0.5 * lanes[i] * lanes[i]);
    lanes[i] = 0.5 * std::erfc(-lanes[i] * 0.70710678118654752440);
  }
  bell = hn::Load(d, bells);
  phi = hn::Load(d, lanes);
}

/// y = f(x) and the slope f'(x).
template <Activation kKind, class D, class V>
HWY_INLINE void activate(D d, V x, V& y, V& slope) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T{1});
  const V zero = hn::Zero(d);
  if constexpr (kKind == Activation::kRelu) {
    y = hn::IfThenElse(hn::Lt(x, zero), zero, x);  // NaN stays
    slope = hn::IfThenElse(hn::Le(x, zero), zero, one);
  } else if constexpr (kKind == Activation::kGeluErf) {
    V bell, phi;
    normal(d, x, bell, phi);
    y = hn::Mul(x, phi);
    slope = hn::MulAdd(hn::Mul(x, bell), hn::Set(d, static_cast<T>(0.39894228040143267794)), phi);
  } else {
    // x s with s = 1 / (1 + e). Results below 1e-37 are 0 in f32, where e is infinite.
    const V e = kKind == Activation::kGelu ? exp_minus_u(d, x) : exp(d, hn::Neg(x));
    const V s = hn::Div(one, hn::Add(one, e));
    V du = one;
    if constexpr (kKind == Activation::kGelu) {
      du = hn::MulAdd(hn::Mul(x, x), hn::Set(d, static_cast<T>(3.0 * kGeluLinear * kGeluCubic)),
                      hn::Set(d, static_cast<T>(kGeluLinear)));
    }
    // 1 - s, which would cancel where s is near 1; x and the slope multiply its error.
    const V rest = hn::IfThenElse(hn::Eq(s, zero), one, hn::Mul(e, s));
    y = hn::Mul(x, s);
    slope = hn::Mul(s, hn::MulAdd(hn::Mul(x, rest), du, one));
  }
}

/// Calls f.operator()<kind>().
template <class F>
void visit_activation(Activation kind, F&& f) {
  switch (kind) {
    case Activation::kGelu:
      return f.template operator()<Activation::kGelu>();
    case Activation::kGeluErf:
      return f.template operator()<Activation::kGeluErf>();
    case Activation::kSilu:
      return f.template operator()<Activation::kSilu>();
    case Activation::kRelu:
      return f.template operator()<Activation::kRelu>();
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

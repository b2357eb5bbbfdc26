// SPDX-License-Identifier: Apache-2.0
// Highway helpers, compiled once per instruction set: loops over rows of any length whose last,
// short vector is computed like the others (so that no element's bits depend on where a range was
// cut), and an exponential. To be included after hwy/foreach_target.h.
#if defined(TESSERA_KERNELS_CPU_VECTOR_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_VECTOR_INL_HPP_
#undef TESSERA_KERNELS_CPU_VECTOR_INL_HPP_
#else
#define TESSERA_KERNELS_CPU_VECTOR_INL_HPP_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "tessera/core/low_precision.hpp"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Asks for what a loop reads a page from here: a loop with much arithmetic per element does not
/// run far enough ahead by itself. Reading beyond the end is harmless.
template <typename T>
HWY_INLINE void prefetch(const T* p) {
  hwy::Prefetch(reinterpret_cast<const char*>(p) + 4096);
}

/// Vectors of D are computed; arrays may hold them as they are, or as bf16 or f16.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bf16* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const f16* p) {
  const hn::Rebind<hwy::float16_t, D> d16;
  const hn::RebindToUnsigned<decltype(d16)> u16;
  const auto bits = hn::LoadU(u16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::PromoteTo(d, hn::BitCast(d16, bits));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}
/// Rounds to nearest even; NaN stays one.
template <class D>
HWY_INLINE void store(D /*d*/, hn::Vec<D> v, bf16* p) {
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> i32;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::BitCast(d32, v);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(d32, 1U));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFFU))));
  const auto quiet = hn::Or(high, hn::Set(d32, 0x40U));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  const auto low = hn::IfThenElse(is_nan, quiet, rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(i32, low)), d16, reinterpret_cast<std::uint16_t*>(p));
}
template <class D>
HWY_INLINE void store(D /*d*/, hn::Vec<D> v, f16* p) {
  const hn::Rebind<hwy::float16_t, D> d16;
  const hn::RebindToUnsigned<decltype(d16)> u16;
  hn::StoreU(hn::BitCast(u16, hn::DemoteTo(d16, v)), u16, reinterpret_cast<std::uint16_t*>(p));
}

/// f(const V (&in)[I], V (&out)[O]) over `count` elements of I input and O output arrays, which may
/// be the same.
template <class D, class S, std::size_t I, std::size_t O, class F>
HWY_INLINE void map_vectors(D d, std::int64_t count, const S* const (&in)[I], S* const (&out)[O],
                            F&& f) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<D> x[I];
  hn::Vec<D> y[O];
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::size_t k = 0; k < I; ++k) prefetch(in[k] + i);
    for (std::size_t k = 0; k < I; ++k) x[k] = load(d, in[k] + i);
    f(x, y);
    for (std::size_t k = 0; k < O; ++k) store(d, y[k], out[k] + i);
  }
  if (i == count) return;
  const std::size_t rest = static_cast<std::size_t>(count - i) * sizeof(S);
  HWY_ALIGN S part[hn::MaxLanes(D())] = {};
  for (std::size_t k = 0; k < I; ++k) {
    std::memcpy(static_cast<void*>(part), in[k] + i, rest);
    x[k] = load(d, part);
  }
  f(x, y);
  for (std::size_t k = 0; k < O; ++k) {
    store(d, y[k], part);
    std::memcpy(static_cast<void*>(out[k] + i), part, rest);
  }
}

/// Folds f(accumulator, V) over x[0, count) into two vectors, and those with `combine` into one.
/// The lanes beyond the end hold `padding`.
template <class D, class F, class C>
HWY_INLINE hn::Vec<D> fold_vectors(D d, const hn::TFromD<D>* x, std::int64_t count,
                                   hn::Vec<D> start, hn::TFromD<D> padding, F&& f, C&& combine) {
  using T = hn::TFromD<D>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<D> a = start;
  hn::Vec<D> b = start;
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    prefetch(x + i);
    prefetch(x + i + lanes);
    a = f(a, hn::LoadU(d, x + i));
    b = f(b, hn::LoadU(d, x + i + lanes));
  }
  for (; i < count; i += lanes) {
    HWY_ALIGN T part[hn::MaxLanes(D())];
    hn::Store(hn::Set(d, padding), d, part);
    const std::int64_t rest = count - i < lanes ? count - i : lanes;
    std::memcpy(part, x + i, static_cast<std::size_t>(rest) * sizeof(T));
    a = f(a, hn::Load(d, part));
  }
  return combine(a, b);
}

/// x within [low, high]; NaN stays, which Min and Max do not promise.
template <class V>
HWY_INLINE V clamped(V x, V low, V high) {
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  return hn::IfThenElse(hn::Gt(x, high), high, x);
}

/// Adds 1.5 2^mantissa: the sum's low bits are the nearest integer in two's complement.
template <typename T>
HWY_INLINE T rounding_magic() {
  return sizeof(T) == 4 ? static_cast<T>(12582912.0) : static_cast<T>(6755399441055744.0);
}

/// e^r for |r| <= ln(2)/2: Cephes' polynomial in f32 (1 ulp), Taylor's to degree 13 in f64.
template <class D, class V>
HWY_INLINE V exp_polynomial(D d, V r) {
  const auto c = [d](double value) { return hn::Set(d, static_cast<hn::TFromD<D>>(value)); };
  V p;
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    p = c(1.9875691500e-4);
    p = hn::MulAdd(p, r, c(1.3981999507e-3));
    p = hn::MulAdd(p, r, c(8.3334519073e-3));
    p = hn::MulAdd(p, r, c(4.1665795894e-2));
    p = hn::MulAdd(p, r, c(1.6666665459e-1));
  } else {
    p = c(1.0 / 6227020800.0);
    p = hn::MulAdd(p, r, c(1.0 / 479001600.0));
    p = hn::MulAdd(p, r, c(1.0 / 39916800.0));
    p = hn::MulAdd(p, r, c(1.0 / 3628800.0));
    p = hn::MulAdd(p, r, c(1.0 / 362880.0));
    p = hn::MulAdd(p, r, c(1.0 / 40320.0));
    p = hn::MulAdd(p, r, c(1.0 / 5040.0));
    p = hn::MulAdd(p, r, c(1.0 / 720.0));
    p = hn::MulAdd(p, r, c(1.0 / 120.0));
    p = hn::MulAdd(p, r, c(1.0 / 24.0));
    p = hn::MulAdd(p, r, c(1.0 / 6.0));
  }
  p = hn::MulAdd(p, r, c(0.5));
  return hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), c(1.0));
}

/// x 2^n for the integer n that `shifted` = n + rounding_magic holds; two factors, because 2^n need
/// not be finite where the result is.
template <class D, class V>
HWY_INLINE V times_power_of_two(D d, V x, V shifted) {
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  using TI = hn::TFromD<decltype(di)>;
  constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
  constexpr TI kBias = sizeof(T) == 4 ? 127 : 1023;
  // n + 2 kBias is positive, so that a logical shift halves it (f64 has no arithmetic one on AVX2).
  const hn::RebindToUnsigned<D> du;
  const auto sum =
      hn::Sub(hn::BitCast(di, shifted), hn::Sub(hn::BitCast(di, hn::Set(d, rounding_magic<T>())),
                                                hn::Set(di, static_cast<TI>(2 * kBias))));
  const auto half = hn::BitCast(di, hn::ShiftRight<1>(hn::BitCast(du, sum)));
  const auto other = hn::Sub(sum, half);
  return hn::Mul(hn::Mul(x, hn::BitCast(d, hn::ShiftLeft<kMantissa>(half))),
                 hn::BitCast(d, hn::ShiftLeft<kMantissa>(other)));
}

/// e^(x + low) within about 1 ulp for a small correction `low` of x; 0 and infinity where the
/// result is beyond the format; NaN stays.
template <class D, class V>
HWY_INLINE V exp(D d, V x, V low) {
  using T = hn::TFromD<D>;
  constexpr bool kIsF32 = sizeof(T) == 4;
  const auto c = [d](double value) { return hn::Set(d, static_cast<T>(value)); };
  const V bounded = clamped(x, c(kIsF32 ? -104.0 : -746.0), c(kIsF32 ? 89.0 : 710.0));
  const V magic = hn::Set(d, rounding_magic<T>());
  const V shifted = hn::MulAdd(bounded, c(1.44269504088896340736), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, c(kIsF32 ? 0.693359375 : 6.93145751953125e-1), bounded);
  r = hn::NegMulAdd(n, c(kIsF32 ? -2.12194440e-4 : 1.42860682030941723212e-6), r);
  return times_power_of_two(d, exp_polynomial(d, hn::Add(r, low)), shifted);
}

template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  return exp(d, x, hn::Zero(d));
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

// SPDX-License-Identifier: Apache-2.0
// Loops that the compiler vectorises: sums in a fixed number of lanes (the same bits on every ISA
// and for any thread count), and an exponential without calls.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tessera::kernels {

inline constexpr int kLanes = 16;

/// Sum of f(i) for i in [0, count): lane i % 16 adds its terms in order, then the lanes are added
/// in order.
template <typename T, typename F>
[[gnu::always_inline]] inline T lane_sum(std::int64_t count, F&& f) {
  T lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += f(i + l);
  }
  for (int l = 0; i < count; ++i, ++l) lanes[l] += f(i);
  T sum = 0;
  for (int l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

/// Largest of x[0, count), -inf when empty.
template <typename T>
[[gnu::always_inline]] inline T lane_max(const T* x, std::int64_t count) {
  T lanes[kLanes];
  for (T& lane : lanes) lane = -INFINITY;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  }
  for (int l = 0; i < count; ++i, ++l) lanes[l] = x[i] > lanes[l] ? x[i] : lanes[l];
  T most = lanes[0];
  for (const T lane : lanes) most = lane > most ? lane : most;
  return most;
}

/// exp(x) in f32 to about 1 ulp: 2^n e^r with |r| <= ln(2)/2 and a polynomial of degree 6 (Cephes'
/// coefficients). 0 below -87.3; the largest finite power of two range above 88.7 is infinity.
[[gnu::always_inline]] inline float fast_exp(float x) {
  const float clamped = x < -87.3F ? -87.3F : (x > 88.7F ? 88.7F : x);
  const float shifted = clamped * 1.44269504F + 12582912.0F;  // 1.5 * 2^23: rounds to an integer
  const float n = shifted - 12582912.0F;
  const float r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  // Two factors, because 2^128 is not finite.
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - 0x4B400000;
  const std::int32_t half = exponent >> 1;
  const float a = std::bit_cast<float>((half + 127) << 23);
  const float b = std::bit_cast<float>((exponent - half + 127) << 23);
  const float value = p * a * b;
  return x < -87.3F ? 0.0F : value;
}

inline double fast_exp(double x) { return std::exp(x); }

}  // namespace tessera::kernels

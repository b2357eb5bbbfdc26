// SPDX-License-Identifier: Apache-2.0
// The 8- and 16-bit floats, as storage types: arithmetic is done in float or double. Conversion
// rounds once, to nearest even, from float and from double. Formats: IEEE 754 binary16, bfloat16,
// and OCP 8-bit floating point (E4M3 without infinities, E5M2).
//           bias  largest      smallest normal  smallest subnormal
//   bf16    127   3.3895e38    2^-126           2^-133
//   f16     15    65504        2^-14            2^-24
//   e4m3    7     448          2^-6             2^-9               overflow is NaN
//   e5m2    15    57344        2^-14            2^-16              overflow is infinity
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tessera/core/dtype.hpp"

namespace tessera {

namespace detail {

/// Bits of a small float with `mantissa` explicit bits. `infinity` is the pattern that overflow
/// gives, `nan` the one of NaN (both without sign), `largest` that of the largest finite value.
struct FloatFormat {
  int mantissa;
  int bias;
  std::uint32_t largest;
  std::uint32_t infinity;
  std::uint32_t nan;
  int sign_shift;
};

inline constexpr FloatFormat kF16Format{10, 15, 0x7BFF, 0x7C00, 0x7E00, 15};
inline constexpr FloatFormat kBF16Format{7, 127, 0x7F7F, 0x7F80, 0x7FC0, 15};
inline constexpr FloatFormat kF8E4M3Format{3, 7, 0x7E, 0x7F, 0x7F, 7};
inline constexpr FloatFormat kF8E5M2Format{2, 15, 0x7B, 0x7C, 0x7E, 7};

/// The nearest pattern to a double, ties to even.
std::uint32_t encode(double value, const FloatFormat& format);
/// Exact.
double decode(std::uint32_t bits, const FloatFormat& format);

inline std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {  // keep NaN NaN
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace detail

struct f16 {
  std::uint16_t bits = 0;
  f16() = default;
  explicit f16(float value) : f16(static_cast<double>(value)) {}
  explicit f16(double value)
      : bits(static_cast<std::uint16_t>(detail::encode(value, detail::kF16Format))) {}
  explicit operator float() const {
    return static_cast<float>(detail::decode(bits, detail::kF16Format));
  }
};

struct bf16 {
  std::uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float value) : bits(detail::bf16_bits(value)) {}
  explicit bf16(double value)
      : bits(static_cast<std::uint16_t>(detail::encode(value, detail::kBF16Format))) {}
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

struct f8e4m3 {
  std::uint8_t bits = 0;
  f8e4m3() = default;
  explicit f8e4m3(float value) : f8e4m3(static_cast<double>(value)) {}
  explicit f8e4m3(double value)
      : bits(static_cast<std::uint8_t>(detail::encode(value, detail::kF8E4M3Format))) {}
  explicit operator float() const {
    return static_cast<float>(detail::decode(bits, detail::kF8E4M3Format));
  }
};

struct f8e5m2 {
  std::uint8_t bits = 0;
  f8e5m2() = default;
  explicit f8e5m2(float value) : f8e5m2(static_cast<double>(value)) {}
  explicit f8e5m2(double value)
      : bits(static_cast<std::uint8_t>(detail::encode(value, detail::kF8E5M2Format))) {}
  explicit operator float() const {
    return static_cast<float>(detail::decode(bits, detail::kF8E5M2Format));
  }
};

/// Conversions that give the largest finite value of the sign where the plain ones overflow; NaN
/// stays.
f8e4m3 saturating_f8e4m3(double value);
f8e5m2 saturating_f8e5m2(double value);

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// Conversions between dtypes that give the bits of low_precision.hpp, without branches or calls
// where f32 is on one side, so that the compiler vectorises loops over them.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tessera/core/low_precision.hpp"

namespace tessera::kernels {

template <typename T>
struct LowFormat;
template <>
struct LowFormat<f16> {
  static constexpr detail::FloatFormat value = detail::kF16Format;
};
template <>
struct LowFormat<f8e4m3> {
  static constexpr detail::FloatFormat value = detail::kF8E4M3Format;
};
template <>
struct LowFormat<f8e5m2> {
  static constexpr detail::FloatFormat value = detail::kF8E5M2Format;
};

template <typename To>
[[gnu::always_inline]] inline To narrowed(float value) {
  To out;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t size = bits & 0x7FFFFFFFU;
  if constexpr (std::is_same_v<To, bf16>) {
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40U;
    out.bits = static_cast<std::uint16_t>(size > 0x7F800000U ? quiet : rounded);
  } else {
    constexpr detail::FloatFormat f = LowFormat<To>::value;
    constexpr int kShift = 23 - f.mantissa;
    constexpr auto kRebias = static_cast<std::uint32_t>(127 - f.bias) << 23;
    // Subnormal results: adding 2^(23 - mantissa + 1 - bias) rounds at their last bit.
    constexpr auto kMagic = static_cast<std::uint32_t>(127 + kShift + 1 - f.bias) << 23;
    constexpr auto kLeastNormal = static_cast<std::uint32_t>(128 - f.bias) << 23;
    const std::uint32_t small =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + std::bit_cast<float>(kMagic)) -
        kMagic;
    const std::uint32_t normal =
        (size - kRebias + ((1U << (kShift - 1)) - 1U) + ((size >> kShift) & 1U)) >> kShift;
    std::uint32_t result = size < kLeastNormal ? small : normal;
    result = result > f.largest ? f.infinity : result;
    result = size > 0x7F800000U ? f.nan : result;
    out.bits = static_cast<decltype(out.bits)>(result | (bits >> 31) << f.sign_shift);
  }
  return out;
}

template <typename From>
[[gnu::always_inline]] inline float widened(From value) {
  if constexpr (std::is_same_v<From, bf16>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
  } else {
    constexpr detail::FloatFormat f = LowFormat<From>::value;
    const std::uint32_t bits = value.bits;
    const std::uint32_t size = bits & ((1U << f.sign_shift) - 1U);
    constexpr float kRebias = std::bit_cast<float>(static_cast<std::uint32_t>(254 - f.bias) << 23);
    const float scaled = std::bit_cast<float>(size << (23 - f.mantissa)) * kRebias;
    std::uint32_t result = std::bit_cast<std::uint32_t>(scaled);
    const std::uint32_t special =
        size == f.infinity && f.infinity != f.nan ? 0x7F800000U : 0x7FC00000U;
    result = size >= f.infinity ? special : result;
    return std::bit_cast<float>(result | (bits >> f.sign_shift) << 31);
  }
}

template <typename T>
inline constexpr bool is_low = std::is_class_v<T>;

/// An element in the type it is computed in: f32 for the low floats.
template <typename S>
[[gnu::always_inline]] inline auto computed(S value) {
  if constexpr (is_low<S>) {
    return widened(value);
  } else {
    return value;
  }
}
/// The inverse, rounding once.
template <typename S, typename C>
[[gnu::always_inline]] inline S stored(C value) {
  if constexpr (is_low<S>) {
    return narrowed<S>(value);
  } else {
    return value;
  }
}

/// Floats round to nearest even, f64 in one step; a float becomes an integer by truncation, and
/// must be in its range.
template <typename To, typename From>
[[gnu::always_inline]] inline To converted(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (is_low<From>) {
    return converted<To>(widened(value));
  } else if constexpr (!is_low<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_same_v<From, float>) {
    return narrowed<To>(value);
  } else {
    return To(static_cast<double>(value));
  }
}

}  // namespace tessera::kernels

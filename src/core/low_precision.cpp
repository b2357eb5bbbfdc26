// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/low_precision.hpp"

#include <algorithm>

namespace tessera {

std::uint32_t detail::encode(double value, const FloatFormat& format) {
  const std::uint32_t sign = std::signbit(value) ? 1U << format.sign_shift : 0U;
  if (std::isnan(value)) return sign | format.nan;
  const double magnitude = std::abs(value);
  if (std::isinf(magnitude)) return sign | format.infinity;
  if (magnitude == 0.0) return sign;
  const int smallest = 1 - format.bias;
  const int exponent = std::max(std::ilogb(magnitude), smallest);
  if (exponent > format.bias + 1) return sign | format.infinity;
  // In units of the last place at this exponent; scaling by a power of two is exact, so this rounds
  // once.
  const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa - exponent));
  const auto steps = static_cast<std::int64_t>(units);
  const std::int64_t one = std::int64_t{1} << format.mantissa;
  // A carry out of the mantissa moves to the next exponent by itself.
  const std::int64_t bits =
      std::ilogb(magnitude) < smallest
          ? steps
          : (static_cast<std::int64_t>(exponent + format.bias) << format.mantissa) + steps - one;
  if (bits > static_cast<std::int64_t>(format.largest)) return sign | format.infinity;
  return sign | static_cast<std::uint32_t>(bits);
}

double detail::decode(std::uint32_t bits, const FloatFormat& format) {
  const std::uint32_t magnitude = bits & ((1U << format.sign_shift) - 1U);
  const double sign = (bits >> format.sign_shift) != 0U ? -1.0 : 1.0;
  if (magnitude > format.largest) {
    const bool is_infinite = magnitude == format.infinity && format.infinity != format.nan;
    return sign * (is_infinite ? HUGE_VAL : std::nan(""));
  }
  const auto mantissa = static_cast<int>(magnitude & ((1U << format.mantissa) - 1U));
  const auto exponent = static_cast<int>(magnitude >> format.mantissa);
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias - format.mantissa);
  return sign *
         std::ldexp(mantissa + (1 << format.mantissa), exponent - format.bias - format.mantissa);
}

f8e4m3 saturating_f8e4m3(double value) {
  return f8e4m3(std::isnan(value) ? value : std::clamp(value, -448.0, 448.0));
}

f8e5m2 saturating_f8e5m2(double value) {
  return f8e5m2(std::isnan(value) ? value : std::clamp(value, -57344.0, 57344.0));
}

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// Every finite value of every format is compared with an independent decoder, and rounding is
// checked on both sides of every midpoint between neighbours.
#include "tessera/core/low_precision.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tessera {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// What the tests know about a format, apart from the library.
template <typename T>
struct Facts;
template <>
struct Facts<f16> {
  static constexpr int exponent = 5, mantissa = 10;
  static constexpr double largest = 65504.0, smallest_normal = 0x1p-14, smallest = 0x1p-24;
  static constexpr bool has_infinity = true;
};
template <>
struct Facts<bf16> {
  static constexpr int exponent = 8, mantissa = 7;
  static constexpr double largest = 0x1.FEp127, smallest_normal = 0x1p-126, smallest = 0x1p-133;
  static constexpr bool has_infinity = true;
};
template <>
struct Facts<f8e4m3> {
  static constexpr int exponent = 4, mantissa = 3;
  static constexpr double largest = 448.0, smallest_normal = 0x1p-6, smallest = 0x1p-9;
  static constexpr bool has_infinity = false;
};
template <>
struct Facts<f8e5m2> {
  static constexpr int exponent = 5, mantissa = 2;
  static constexpr double largest = 57344.0, smallest_normal = 0x1p-14, smallest = 0x1p-16;
  static constexpr bool has_infinity = true;
};

template <typename T>
using Bits = decltype(T::bits);

template <typename T>
T with_bits(unsigned bits) {
  T out;
  out.bits = static_cast<Bits<T>>(bits);
  return out;
}

template <typename T>
double widened(T value) {
  return static_cast<double>(static_cast<float>(value));
}

template <typename T>
constexpr unsigned kSign = 1U << (Facts<T>::exponent + Facts<T>::mantissa);

/// Magnitude of a finite pattern without sign, from the definition of the format.
template <typename T>
double magnitude_of(unsigned bits) {
  const int bias = (1 << (Facts<T>::exponent - 1)) - 1;
  const int field = static_cast<int>(bits >> Facts<T>::mantissa);
  const double fraction = static_cast<double>(bits & ((1U << Facts<T>::mantissa) - 1U)) /
                          static_cast<double>(1 << Facts<T>::mantissa);
  return field == 0 ? fraction * std::pow(2.0, 1 - bias)
                    : (1.0 + fraction) * std::pow(2.0, field - bias);
}

/// Pattern of the largest finite value.
template <typename T>
unsigned largest_bits() {
  const unsigned all_ones = kSign<T> - 1U;
  return Facts<T>::has_infinity ? all_ones - (1U << Facts<T>::mantissa) : all_ones - 1U;
}

template <typename T>
class LowPrecisionTest : public testing::Test {};

using Formats = testing::Types<f16, bf16, f8e4m3, f8e5m2>;
struct FormatNames {
  template <typename T>
  static std::string GetName(int) {
    return to_string(dtype_of<T>);
  }
};
TYPED_TEST_SUITE(LowPrecisionTest, Formats, FormatNames);

TYPED_TEST(LowPrecisionTest, HasTheSizeOfItsDType) {
  EXPECT_EQ(sizeof(TypeParam), size_of(dtype_of<TypeParam>));
}

TYPED_TEST(LowPrecisionTest, DecodesEveryFinitePattern) {
  for (unsigned bits = 0; bits <= largest_bits<TypeParam>(); ++bits) {
    const double expected = magnitude_of<TypeParam>(bits);
    ASSERT_EQ(widened(with_bits<TypeParam>(bits)), expected) << bits;
    ASSERT_EQ(widened(with_bits<TypeParam>(bits | kSign<TypeParam>)), -expected) << bits;
  }
}

TYPED_TEST(LowPrecisionTest, HasTheTabulatedLimits) {
  using F = Facts<TypeParam>;
  EXPECT_EQ(widened(with_bits<TypeParam>(largest_bits<TypeParam>())), F::largest);
  EXPECT_EQ(widened(with_bits<TypeParam>(1U << F::mantissa)), F::smallest_normal);
  EXPECT_EQ(widened(with_bits<TypeParam>(1U)), F::smallest);
}

TYPED_TEST(LowPrecisionTest, RoundTripsEveryPattern) {
  for (unsigned bits = 0; bits < 2U * kSign<TypeParam>; ++bits) {
    const float value = static_cast<float>(with_bits<TypeParam>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(TypeParam(value)))) << bits;
      ASSERT_TRUE(std::isnan(widened(TypeParam(static_cast<double>(value))))) << bits;
    } else {
      ASSERT_EQ(TypeParam(value).bits, bits);
      ASSERT_EQ(TypeParam(static_cast<double>(value)).bits, bits);
    }
  }
}

TYPED_TEST(LowPrecisionTest, PatternsAboveTheLargestAreInfinityOrNan) {
  using F = Facts<TypeParam>;
  for (unsigned bits = largest_bits<TypeParam>() + 1U; bits < kSign<TypeParam>; ++bits) {
    const double value = widened(with_bits<TypeParam>(bits));
    const bool is_infinity = F::has_infinity && bits == largest_bits<TypeParam>() + 1U;
    ASSERT_EQ(std::isinf(value), is_infinity) << bits;
    ASSERT_EQ(std::isnan(value), !is_infinity) << bits;
  }
}

// A double next to the midpoint lies so close to it that going through float would land on the
// midpoint itself and round a second time.
TYPED_TEST(LowPrecisionTest, RoundsDoublesOnceAroundEveryMidpoint) {
  for (unsigned low = 0; low < largest_bits<TypeParam>(); ++low) {
    const double middle = (magnitude_of<TypeParam>(low) + magnitude_of<TypeParam>(low + 1U)) / 2.0;
    const unsigned even = low % 2U == 0U ? low : low + 1U;
    for (const unsigned sign : {0U, kSign<TypeParam>}) {
      const double s = sign == 0U ? 1.0 : -1.0;
      ASSERT_EQ(TypeParam(s * middle).bits, even | sign) << low;
      ASSERT_EQ(TypeParam(s * std::nextafter(middle, 0.0)).bits, low | sign) << low;
      ASSERT_EQ(TypeParam(s * std::nextafter(middle, kInf)).bits, (low + 1U) | sign) << low;
    }
  }
}

TYPED_TEST(LowPrecisionTest, RoundsFloatsAroundEveryMidpoint) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (unsigned low = 0; low < largest_bits<TypeParam>(); ++low) {
    const float middle = static_cast<float>(
        (magnitude_of<TypeParam>(low) + magnitude_of<TypeParam>(low + 1U)) / 2.0);
    const unsigned even = low % 2U == 0U ? low : low + 1U;
    for (const unsigned sign : {0U, kSign<TypeParam>}) {
      const float s = sign == 0U ? 1.0F : -1.0F;
      ASSERT_EQ(TypeParam(s * middle).bits, even | sign) << low;
      ASSERT_EQ(TypeParam(s * std::nextafter(middle, 0.0F)).bits, low | sign) << low;
      ASSERT_EQ(TypeParam(s * std::nextafter(middle, kInfinity)).bits, (low + 1U) | sign) << low;
    }
  }
}

TYPED_TEST(LowPrecisionTest, OverflowsFromHalfAStepAboveTheLargest) {
  using F = Facts<TypeParam>;
  const unsigned top = largest_bits<TypeParam>();
  const double step = F::largest - magnitude_of<TypeParam>(top - 1U);
  const double edge = F::largest + step / 2.0;
  EXPECT_EQ(TypeParam(std::nextafter(edge, 0.0)).bits, top);
  // The tie goes to the even pattern: e4m3's largest is even, that of the others is odd.
  EXPECT_EQ(TypeParam(edge).bits, top % 2U == 0U ? top : top + 1U);
  for (const double value : {std::nextafter(edge, kInf), 2.0 * F::largest, 1e300, kInf}) {
    EXPECT_EQ(TypeParam(value).bits, top + 1U) << value;
    EXPECT_EQ(TypeParam(-value).bits, (top + 1U) | kSign<TypeParam>) << value;
  }
  const float above =
      std::nextafter(static_cast<float>(edge), std::numeric_limits<float>::infinity());
  EXPECT_EQ(TypeParam(above).bits, top + 1U);
  EXPECT_EQ(TypeParam(-above).bits, (top + 1U) | kSign<TypeParam>);
}

TYPED_TEST(LowPrecisionTest, UnderflowsToSignedZeroUpToHalfTheSmallest) {
  using F = Facts<TypeParam>;
  const double half = F::smallest / 2.0;
  EXPECT_EQ(TypeParam(half).bits, 0U);
  EXPECT_EQ(TypeParam(-half).bits, kSign<TypeParam>);
  EXPECT_EQ(TypeParam(std::nextafter(half, 1.0)).bits, 1U);
  EXPECT_EQ(TypeParam(std::numeric_limits<double>::denorm_min()).bits, 0U);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::denorm_min()).bits, 0U);
  EXPECT_EQ(TypeParam(-0.0).bits, kSign<TypeParam>);
  EXPECT_EQ(TypeParam(-0.0F).bits, kSign<TypeParam>);
}

TYPED_TEST(LowPrecisionTest, KeepsNanWhateverItsPayload) {
  for (const unsigned payload : {1U, 0x2000U, 0x400000U, 0x7FFFFFU}) {
    for (const unsigned sign : {0U, 0x80000000U}) {
      const float nan = std::bit_cast<float>(sign | 0x7F800000U | payload);
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(nan)))) << payload;
      EXPECT_TRUE(std::isnan(widened(TypeParam(static_cast<double>(nan))))) << payload;
    }
  }
}

template <typename T>
void expect_roundings(const std::vector<std::pair<double, double>>& cases) {
  for (const auto& [from, to] : cases) {
    EXPECT_EQ(widened(T(from)), to) << from;
    EXPECT_EQ(widened(T(static_cast<float>(from))), to) << from;
    EXPECT_EQ(widened(T(-from)), -to) << from;
  }
}

TEST(F8e4m3Test, RoundsTheTabulatedTies) {
  expect_roundings<f8e4m3>({{1.0625, 1.0},
                            {1.1875, 1.25},
                            {17.0, 16.0},
                            {19.0, 20.0},
                            {247.0, 240.0},
                            {248.0, 256.0},
                            {464.0, 448.0},
                            {0x1p-10, 0.0},
                            {0x1.8p-9, 0x1p-8}});
  EXPECT_EQ(f8e4m3(465.0).bits, 0x7F);
  EXPECT_EQ(f8e4m3(kInf).bits, 0x7F);
}

TEST(F8e4m3Test, SaturatesOnlyWhenAsked) {
  for (const double value : {464.5, 1e6, kInf}) {
    EXPECT_TRUE(std::isnan(widened(f8e4m3(value)))) << value;
    EXPECT_EQ(widened(saturating_f8e4m3(value)), 448.0) << value;
    EXPECT_EQ(widened(saturating_f8e4m3(-value)), -448.0) << value;
  }
  EXPECT_EQ(widened(saturating_f8e4m3(17.0)), 16.0);
  EXPECT_TRUE(std::isnan(widened(saturating_f8e4m3(kNan))));
}

TEST(F8e5m2Test, RoundsTheTabulatedTies) {
  expect_roundings<f8e5m2>({{1.125, 1.0}, {1.375, 1.5}, {61439.0, 57344.0}, {61440.0, kInf}});
}

TEST(F8e5m2Test, SaturatesOnlyWhenAsked) {
  for (const double value : {61440.0, 1e6, kInf}) {
    EXPECT_EQ(widened(f8e5m2(value)), kInf) << value;
    EXPECT_EQ(widened(saturating_f8e5m2(value)), 57344.0) << value;
    EXPECT_EQ(widened(saturating_f8e5m2(-value)), -57344.0) << value;
  }
  EXPECT_EQ(widened(saturating_f8e5m2(1.375)), 1.5);
  EXPECT_TRUE(std::isnan(widened(saturating_f8e5m2(kNan))));
}

TEST(Bf16Test, RoundsTheTabulatedTies) {
  expect_roundings<bf16>({{1.00390625, 1.0}, {1.005859375, 1.0078125}, {65504.0, 65536.0}});
  EXPECT_EQ(bf16(1.00390625F).bits, 0x3F80);
  EXPECT_EQ(bf16(1.005859375F).bits, 0x3F81);
}

TEST(F16Test, RoundsTheTabulatedTies) {
  expect_roundings<f16>({{2049.0, 2048.0}, {2051.0, 2052.0}, {65519.0, 65504.0}, {65520.0, kInf}});
}

}  // namespace
}  // namespace tessera

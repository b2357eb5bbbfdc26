// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "op_cases.hpp"
#include "tessera/core/low_precision.hpp"

namespace tessera {
namespace {

using namespace testing;

class CopyTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(CopyTest, KeepsValuesBetweenAnyStrides) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Values x = random_values(shape.numel(), 1);
  const Tensor input = make_tensor(*context, shape, x, dtype, layout);
  const Tensor dense = ops::copy(input);
  EXPECT_TRUE(dense.is_contiguous());
  EXPECT_FALSE(dense.shares_storage(input));
  EXPECT_EQ(values_of(dense), x);
  for (const Layout to : {Layout::kDense, Layout::kReversed, Layout::kGapped}) {
    const Tensor y = make_tensor(*context, shape, Values(x.size(), -1.0), dtype, to);
    ops::copy_into(y, input);
    EXPECT_EQ(values_of(y), x);
    ops::fill(y, 0.5);
    EXPECT_EQ(values_of(y), Values(x.size(), 0.5));
  }
  const DType other = dtype == DType::kF64 ? DType::kF32 : DType::kF64;
  EXPECT_EQ(values_of(ops::cast(input, other)), x);
}

INSTANTIATE_TEST_SUITE_P(Cases, CopyTest, ::testing::ValuesIn(op_cases()), case_name);

TEST(CopyViewTest, MatchesElementwiseCopiesOfEveryPermutation) {
  const auto context = make_context(3);
  const Tensor x = make_tensor(*context, {3, 41, 5, 67}, random_values(3 * 41 * 5 * 67, 2));
  std::vector<int> order = {0, 1, 2, 3};
  do {
    const Tensor view = x.permute(order);
    ASSERT_EQ(values_of(ops::copy(view)), values_of(view));
    const Tensor part = view.narrow(1, 1, 2).narrow(3, 1, 2);
    ASSERT_EQ(values_of(ops::copy(part)), values_of(part));
    ASSERT_EQ(values_of(ops::cast(view, DType::kF32)), values_of(view));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(CopyViewTest, RepeatsBroadcastElements) {
  const auto context = make_context();
  const Tensor x = make_tensor(*context, {2, 1}, {1.0, 2.0});
  EXPECT_EQ(values_of(ops::copy(x.broadcast_to({2, 2, 3}))),
            (Values{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
}

TEST(CopyViewTest, WritesOnlyTheWindow) {
  const auto context = make_context();
  const Tensor y = make_tensor(*context, {3, 4}, Values(12, 7.0));
  const auto version = y.storage()->version();
  ops::fill(y.narrow(0, 1, 1).narrow(1, 1, 2), 0.0);
  EXPECT_EQ(values_of(y), (Values{7, 7, 7, 7, 7, 0, 0, 7, 7, 7, 7, 7}));
  EXPECT_GT(y.storage()->version(), version);
}

TEST(ContiguousTest, ReturnsADenseTensorItself) {
  const auto context = make_context();
  const Tensor x = make_tensor(*context, {2, 3}, random_values(6, 3));
  EXPECT_TRUE(ops::contiguous(x).shares_storage(x));
  EXPECT_FALSE(ops::contiguous(x.transpose(0, 1)).shares_storage(x));
  EXPECT_TRUE(ops::cast(x, DType::kF64).shares_storage(x));
}

/// Floats next to all values and ties of a low format, and random bit patterns.
std::vector<float> hard_floats() {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 300000; ++i) {
    values.push_back(std::bit_cast<float>(random_bits(RandomKey{1}, i)));
  }
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low : {0U, 1U, 0x0FFFU, 0x1000U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  return values;
}

template <typename T>
void expect_same_bits_as_scalar(DType dtype) {
  const auto context = make_context();
  const auto values = hard_floats();
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor low = ops::cast(Tensor::from(*context, {count}, values), dtype);
  const auto fast = low.to_vector<T>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T expected(values[i]);
    if (std::isnan(static_cast<float>(expected))) {
      ASSERT_TRUE(std::isnan(static_cast<float>(fast[i]))) << values[i];
    } else {
      ASSERT_EQ(fast[i].bits, expected.bits) << values[i];
    }
  }
  const auto back = ops::cast(low, DType::kF32).to_vector<float>();
  for (std::size_t i = 0; i < back.size(); ++i) {
    const auto expected = static_cast<float>(fast[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(back[i]));
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(expected));
    }
  }
}

TEST(CastTest, RoundsLikeTheScalarTypes) {
  expect_same_bits_as_scalar<bf16>(DType::kBF16);
  expect_same_bits_as_scalar<f16>(DType::kF16);
  expect_same_bits_as_scalar<f8e4m3>(DType::kF8E4M3);
  expect_same_bits_as_scalar<f8e5m2>(DType::kF8E5M2);
}

// OCP 8-bit floating point specification: ties to even, overflow, subnormals.
TEST(CastTest, GivesKnownValues) {
  const auto context = make_context();
  const auto through = [&](const Values& x, DType dtype) {
    const Tensor low = ops::cast(
        make_tensor(*context, {static_cast<std::int64_t>(x.size())}, x, DType::kF32), dtype);
    return values_of(ops::cast(low, DType::kF32));
  };
  EXPECT_EQ(through({1.0625, 1.1875, 17, 19, 247, 248, 464, 0x1p-10, 1.5 * 0x1p-9}, DType::kF8E4M3),
            (Values{1, 1.25, 16, 20, 240, 256, 448, 0, 0x1p-8}));
  EXPECT_EQ(through({1.125, 1.375, 61439, 61440}, DType::kF8E5M2),
            (Values{1, 1.5, 57344, std::numeric_limits<double>::infinity()}));
  EXPECT_EQ(through({1.00390625, 1.005859375, 65504}, DType::kBF16), (Values{1, 1.0078125, 65536}));
  EXPECT_EQ(through({65504, 65519, 65520, 0x1p-25}, DType::kF16),
            (Values{65504, 65504, std::numeric_limits<double>::infinity(), 0}));
}

TEST(CastTest, RoundsF64InOneStep) {
  const auto context = make_context();
  // Just above a tie of bf16; rounding to f32 first would land on the tie and go to even.
  const Tensor x = make_tensor(*context, {1}, {1.00390625 + 0x1p-40});
  EXPECT_EQ(ops::cast(x, DType::kBF16).item(), 1.0078125);
}

TEST(CastTest, ConvertsBetweenAllDtypes) {
  const auto context = make_context();
  const std::vector<DType> all = {DType::kF64,  DType::kF32,    DType::kF16,
                                  DType::kBF16, DType::kF8E4M3, DType::kF8E5M2,
                                  DType::kI64,  DType::kI32,    DType::kU8};
  ASSERT_EQ(all.size(), static_cast<std::size_t>(kDTypeCount));
  const Tensor x = make_tensor(*context, {5}, {0.0, 1.0, 2.0, 4.0, 96.0});
  for (const DType from : all) {
    for (const DType to : all) {
      const Tensor y = ops::cast(ops::cast(ops::cast(x, from), to), DType::kF64);
      EXPECT_EQ(values_of(y), values_of(x)) << to_string(from) << " to " << to_string(to);
    }
    const Tensor filled = Tensor::zeros(*context, {3}, from);
    ops::fill(filled, 2.0);
    EXPECT_EQ(values_of(ops::cast(filled, DType::kF64)), Values(3, 2.0)) << to_string(from);
  }
}

TEST(CopyErrorTest, NamesBothShapes) {
  const auto context = make_context();
  expect_error(
      [&] {
        ops::copy_into(Tensor::zeros(*context, {2}, DType::kF32),
                       Tensor::zeros(*context, {3}, DType::kF32));
      },
      ErrorCode::kShape, {"copy", "[2]", "[3]"});
}

TEST(CopyThreadsTest, BitsDoNotDependOnThem) {
  expect_same_bits_for_any_thread_count([](Context& context) {
    const Tensor x = make_tensor(context, {301, 203}, random_values(301 * 203, 4), DType::kF32);
    return ops::cast(ops::copy(x.transpose(0, 1)), DType::kBF16);
  });
}

}  // namespace
}  // namespace tessera

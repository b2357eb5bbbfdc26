// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/add.hpp"

#include <gtest/gtest.h>

#include "op_cases.hpp"
#include "tessera/core/low_precision.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera {
namespace {

using namespace testing;

class AddTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(AddTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Values a = random_values(shape.numel(), 1);
  const Values b = random_values(shape.numel(), 2);
  Values sum;
  Values axpy;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum.push_back(a[i] + b[i]);
    axpy.push_back(a[i] - 0.75 * b[i]);
  }
  const Tensor left = make_tensor(*context, shape, a, dtype, layout);
  const Tensor right = make_tensor(*context, shape, b, dtype);
  const Tensor y = make_tensor(*context, shape, a, dtype);
  expect_close(values_of(ops::add(left, right)), sum, tolerance(dtype, 0.0, 1e-7));
  expect_close(values_of(ops::add(right, left)), sum, tolerance(dtype, 0.0, 1e-7));
  ops::axpy(y, make_tensor(*context, shape, b, dtype, layout), -0.75);
  expect_close(values_of(y), axpy, tolerance(dtype, 1e-15, 2e-7));
}

INSTANTIATE_TEST_SUITE_P(Cases, AddTest, ::testing::ValuesIn(op_cases()), case_name);

/// a + b by the definition of broadcasting: an index of a missing dim or one of size 1 is dropped.
Values broadcast_sum(const Values& a, const Shape& a_shape, const Values& b, const Shape& b_shape,
                     const Shape& shape) {
  const auto at = [](const Shape& own, const Shape& index) {
    std::int64_t offset = 0;
    for (int d = 0; d < own.rank(); ++d) {
      const std::int64_t i = index[index.rank() - own.rank() + d];
      offset = offset * own[d] + (own[d] == 1 ? 0 : i);
    }
    return static_cast<std::size_t>(offset);
  };
  Values y;
  Shape index = Shape::filled(shape.rank(), 0);
  for (std::int64_t n = 0; n < shape.numel(); ++n) {
    y.push_back(a[at(a_shape, index)] + b[at(b_shape, index)]);
    for (int d = shape.rank() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
  return y;
}

TEST(AddBroadcastTest, RepeatsDimsFromTheRight) {
  const auto context = make_context(2);
  const std::vector<std::pair<Shape, Shape>> pairs = {
      {{4, 5, 6}, {6}},    {{4, 5, 6}, {5, 1}},    {{4, 5, 6}, {4, 1, 1}},
      {{4, 5, 6}, {}},     {{4, 1, 6}, {1, 5, 1}}, {{1, 1}, {3, 4}},
      {{3, 1}, {1, 4}},    {{0, 5}, {5}},          {{1}, {0}},
      {{200, 300}, {300}}, {{200, 300}, {200, 1}}, {{3, 2, 4}, {3, 2, 1}}};
  for (const auto& [a_shape, b_shape] : pairs) {
    const Shape shape = broadcast_shapes(a_shape, b_shape);
    const Values a = random_values(a_shape.numel(), 3);
    const Values b = random_values(b_shape.numel(), 4);
    for (const DType dtype : {DType::kF64, DType::kF32}) {
      const Tensor left = make_tensor(*context, a_shape, a, dtype);
      const Tensor right = make_tensor(*context, b_shape, b, dtype);
      const Values expected = broadcast_sum(a, a_shape, b, b_shape, shape);
      expect_close(values_of(ops::add(left, right)), expected, tolerance(dtype, 0.0, 1e-7));
      expect_close(values_of(ops::add(right, left)), expected, tolerance(dtype, 0.0, 1e-7));
    }
  }
}

TEST(AddBroadcastTest, RefusesShapesThatDoNotFit) {
  const auto context = make_context();
  const Tensor a = Tensor::zeros(*context, {2, 3}, DType::kF32);
  expect_error([&] { ops::add(a, Tensor::zeros(*context, {2}, DType::kF32)); }, ErrorCode::kShape,
               {"[2, 3]", "[2]"});
}

TEST(AddIntoTest, MayWriteOnAnOperandAndBumpsItsVersion) {
  const auto context = make_context();
  const Tensor a = make_tensor(*context, {2, 2}, {1.0, 2.0, 3.0, 4.0});
  const Tensor b = make_tensor(*context, {2}, {10.0, 20.0});
  const auto version = a.storage()->version();
  ops::add_into(a, a, b);
  EXPECT_EQ(values_of(a), (Values{11.0, 22.0, 13.0, 24.0}));
  EXPECT_GT(a.storage()->version(), version);
  expect_error([&] { ops::add_into(b, a, b); }, ErrorCode::kShape, {"add", "[2, 2]", "[2]"});
}

TEST(AddLowPrecisionTest, RoundsTheExactSumOnce) {
  const auto context = make_context();
  const Values a = random_values(1037, 5);
  const Values b = random_values(1037, 6, 0.01);
  const auto check = [&]<typename T>(DType dtype) {
    const Tensor x = ops::cast(make_tensor(*context, {1037}, a, DType::kF32), dtype);
    const Tensor y = ops::cast(make_tensor(*context, {1037}, b, DType::kF32), dtype);
    const auto left = x.to_vector<T>();
    const auto right = y.to_vector<T>();
    const auto sum = ops::add(x, y).template to_vector<T>();
    ops::axpy(x, y, 1.0);
    const auto in_place = x.to_vector<T>();
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const T expected(static_cast<float>(left[i]) + static_cast<float>(right[i]));
      ASSERT_EQ(sum[i].bits, expected.bits);
      ASSERT_EQ(in_place[i].bits, expected.bits);
    }
  };
  check.operator()<bf16>(DType::kBF16);
  check.operator()<f16>(DType::kF16);
}

TEST(AxpyTest, AccumulatesLowerDtypes) {
  const auto context = make_context();
  const Values x = random_values(515, 7);
  const std::vector<std::pair<DType, DType>> pairs = {
      {DType::kBF16, DType::kF32}, {DType::kF16, DType::kF32}, {DType::kF32, DType::kF64}};
  for (const auto& [from, to] : pairs) {
    const Tensor low = ops::cast(make_tensor(*context, {515}, x, DType::kF32), from);
    const Values widened = values_of(ops::cast(low, DType::kF32));
    const Tensor y = make_tensor(*context, {515}, Values(515, 1.0), to);
    Values expected;
    for (const double v : widened) expected.push_back(1.0 + 0.5 * v);
    ops::axpy(y, low, 0.5);
    expect_close(values_of(y), expected, tolerance(to, 1e-15, 1e-7));
  }
}

TEST(AxpyTest, NamesWhatDoesNotFit) {
  const auto context = make_context();
  const Tensor y = Tensor::zeros(*context, {2, 3}, DType::kF32);
  expect_error([&] { ops::axpy(y, Tensor::zeros(*context, {3}, DType::kF32)); }, ErrorCode::kShape,
               {"axpy", "[2, 3]", "[3]"});
  expect_error(
      [&] {
        ops::axpy(y, Tensor::zeros(*context, {2, 3}, DType::kF64));
      },
      ErrorCode::kDType, {"axpy", "f64", "f32"});
  expect_error(
      [&] {
        ops::axpy(y.transpose(0, 1), Tensor::zeros(*context, {3, 2}, DType::kF32));
      },
      ErrorCode::kInvalidArgument, {"axpy", "contiguous"});
  expect_error(
      [&] {
        ops::add(y, Tensor::zeros(*context, {2, 3}, DType::kF64));
      },
      ErrorCode::kDType, {"add", "f32", "f64"});
}

TEST(AddThreadsTest, BitsDoNotDependOnThem) {
  expect_same_bits_for_any_thread_count([](Context& context) {
    const Tensor a = make_tensor(context, {301, 203}, random_values(301 * 203, 8), DType::kF32);
    const Tensor y = ops::add(a, make_tensor(context, {203}, random_values(203, 9), DType::kF32));
    ops::axpy(y, a, 0.3);
    return y;
  });
}

}  // namespace
}  // namespace tessera

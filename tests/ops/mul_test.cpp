// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/mul.hpp"

#include <gtest/gtest.h>

#include "op_cases.hpp"

namespace tessera {
namespace {

using namespace testing;

class MulTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(MulTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Values a = random_values(shape.numel(), 1, 1.0, dtype);
  const Values b = random_values(shape.numel(), 2, 1.0, dtype);
  Values product;
  for (std::size_t i = 0; i < a.size(); ++i) product.push_back(a[i] * b[i]);
  const Tensor left = make_tensor(*context, shape, a, dtype, layout);
  const Tensor right = make_tensor(*context, shape, b, dtype);
  expect_close(values_of(ops::mul(left, right)), product, tolerance(dtype, 0.0, 1e-7));
  expect_close(values_of(ops::mul(right, left)), product, tolerance(dtype, 0.0, 1e-7));
}

INSTANTIATE_TEST_SUITE_P(Cases, MulTest, ::testing::ValuesIn(computed_cases()), case_name);

TEST(MulBroadcastTest, RepeatsDimsFromTheRight) {
  const auto context = make_context(2);
  const Values a = random_values(200 * 3, 3);
  const Values b = random_values(200, 4);
  Values rows, columns;
  for (std::size_t i = 0; i < a.size(); ++i) rows.push_back(a[i] * b[i % 3]);
  for (std::size_t i = 0; i < a.size(); ++i) columns.push_back(a[i] * b[i / 3]);
  const Tensor x = make_tensor(*context, {200, 3}, a);
  const Tensor column = make_tensor(*context, {200, 1}, b);
  const Tensor row = make_tensor(*context, {3}, {b[0], b[1], b[2]});
  expect_close(values_of(ops::mul(x, row)), rows, 0.0);
  expect_close(values_of(ops::mul(row, x)), rows, 0.0);
  expect_close(values_of(ops::mul(x, column)), columns, 0.0);
  EXPECT_EQ(ops::mul(column, row).shape(), (Shape{200, 3}));
  EXPECT_EQ(ops::mul(row, Tensor::zeros(*context, {0, 3}, DType::kF64)).shape(), (Shape{0, 3}));
}

TEST(MulErrorTest, NamesShapesAndDtypes) {
  const auto context = make_context();
  const Tensor a = Tensor::zeros(*context, {2, 3}, DType::kF32);
  expect_error([&] { ops::mul(a, Tensor::zeros(*context, {2}, DType::kF32)); }, ErrorCode::kShape,
               {"[2, 3]", "[2]"});
  expect_error([&] { ops::mul(a, Tensor::zeros(*context, {3}, DType::kF64)); }, ErrorCode::kDType,
               {"mul", "f32", "f64"});
  const Tensor i = Tensor::zeros(*context, {3}, DType::kI32);
  expect_error([&] { ops::mul(i, i); }, ErrorCode::kDType, {"mul", "i32"});
}

}  // namespace
}  // namespace tessera

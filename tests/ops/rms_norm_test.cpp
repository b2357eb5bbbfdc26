// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/rms_norm.hpp"

#include <gtest/gtest.h>

#include "op_cases.hpp"
#include "reference_basic.hpp"

namespace tessera {
namespace {

using namespace testing;

constexpr double kEps = 1e-5;

std::vector<OpCase> cases_with_a_width() {
  std::vector<OpCase> cases = computed_cases(1);
  std::erase_if(cases, [](const OpCase& c) { return c.shape.back(0) == 0; });
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    cases.push_back({{133, 1100}, dtype, Layout::kDense});  // more than a panel and a block
  }
  return cases;
}

DType statistics(DType dtype) { return dtype == DType::kF64 ? dtype : DType::kF32; }

class RmsNormTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(RmsNormTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const std::int64_t width = shape.back(0);
  const Values x = random_values(shape.numel(), 1, 2.0, dtype);
  const Values w = random_values(width, 2, 1.0, dtype);
  const Values dy = random_values(shape.numel(), 4, 1.0, dtype);
  const auto expected = reference::rms_norm(x, w, kEps);
  const auto gradient = reference::rms_norm_gradient(dy, x, w, expected);
  const Tensor input = make_tensor(*context, shape, x, dtype, layout);
  const Tensor weight = make_tensor(*context, {width}, w, dtype);
  const Tensor upstream = make_tensor(*context, shape, dy, dtype, layout);

  const auto r = ops::rms_norm(input, Tensor(), weight, kEps);
  expect_close(values_of(r.y), expected.y, tolerance(dtype, 1e-13, 2e-6));
  expect_close(values_of(r.rstd), expected.rstd, tolerance(statistics(dtype), 1e-13, 2e-6));
  EXPECT_EQ(r.rstd.shape(), shape.slice(0, shape.rank() - 1));
  EXPECT_FALSE(r.sum.defined());

  const Tensor dx = ops::rms_norm_backward(upstream, Tensor(), input, weight, r.rstd);
  const double amplified = width == 1 ? 300.0 : 1.0;  // a small element has a large 1 / |x|
  expect_close(values_of(dx), gradient.dx, amplified * tolerance(dtype, 1e-13, 4e-6));
  const Tensor dw = make_tensor(*context, {width}, w, dtype);
  ops::rms_norm_weight_backward(dw, upstream, input, r.rstd);
  Values expected_dw = w;
  for (std::size_t i = 0; i < w.size(); ++i) expected_dw[i] += gradient.dw[i];
  const double growth = std::sqrt(static_cast<double>(1 + r.rstd.numel()));
  expect_close(values_of(dw), expected_dw, growth * tolerance(dtype, 1e-13, 1e-6));
}

/// The residual's sum and its norm are those of two ops, bit for bit; so is the gradient in f64.
TEST_P(RmsNormTest, WithAResidualIsTheSumThenTheNorm) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const std::int64_t width = shape.back(0);
  const Values a = random_values(shape.numel(), 1, 1.0, dtype);
  const Values b = random_values(shape.numel(), 2, 1.0, dtype);
  Values sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum.push_back(dtype == DType::kF64 ? a[i] + b[i] : rounded(a[i] + b[i], dtype));
  }
  const Tensor weight = make_tensor(*context, {width}, random_values(width, 3, 1.0, dtype), dtype);
  const Tensor added = make_tensor(*context, shape, sum, dtype);
  const auto fused = ops::rms_norm(make_tensor(*context, shape, a, dtype, layout),
                                   make_tensor(*context, shape, b, dtype, layout), weight, kEps);
  const auto plain = ops::rms_norm(added, Tensor(), weight, kEps);
  EXPECT_EQ(values_of(fused.sum), sum);
  EXPECT_EQ(values_of(fused.y), values_of(plain.y));
  EXPECT_EQ(values_of(fused.rstd), values_of(plain.rstd));

  const Tensor dy = make_tensor(*context, shape, a, dtype, layout);
  const Tensor dsum = make_tensor(*context, shape, b, dtype, layout);
  const Values dx = values_of(ops::rms_norm_backward(dy, Tensor(), added, weight, plain.rstd));
  Values expected;
  for (std::size_t i = 0; i < dx.size(); ++i) expected.push_back(dx[i] + b[i]);
  // A low float rounds dx here before the sum, the fused op only after it.
  expect_close(values_of(ops::rms_norm_backward(dy, dsum, added, weight, plain.rstd)), expected,
               (width == 1 ? 30.0 : 4.0) * tolerance(dtype, 1e-14, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Cases, RmsNormTest, ::testing::ValuesIn(cases_with_a_width()), case_name);

TEST(RmsNormIdentityTest, RowsHaveUnitMeanSquareAndIgnoreScale) {
  const auto context = make_context();
  const Values x = random_values(21, 5);
  Values scaled = x;
  for (double& v : scaled) v *= 4.0;
  const Tensor one = make_tensor(*context, {7}, Values(7, 1.0));
  const Values y = values_of(ops::rms_norm(make_tensor(*context, {3, 7}, x), {}, one, 0.0).y);
  for (std::size_t row = 0; row < 3; ++row) {
    double square = 0.0;
    for (std::size_t i = 0; i < 7; ++i) square += y[row * 7 + i] * y[row * 7 + i];
    EXPECT_NEAR(square, 7.0, 1e-12);
  }
  expect_close(values_of(ops::rms_norm(make_tensor(*context, {3, 7}, scaled), {}, one, 0.0).y), y,
               1e-14);
}

TEST(RmsNormIdentityTest, EpsIsAddedToTheMeanSquare) {
  const auto context = make_context();
  const Tensor x = make_tensor(*context, {1, 4}, {0.0, 0.0, 0.0, 0.0});
  const Tensor one = make_tensor(*context, {4}, Values(4, 1.0));
  EXPECT_DOUBLE_EQ(ops::rms_norm(x, {}, one, 0.25).rstd.item(), 2.0);
}

TEST(RmsNormThreadsTest, BitsDoNotDependOnThem) {
  for (const Shape& shape : {Shape{1501, 37}, Shape{333, 1100}}) {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
      for (int part = 0; part < 3; ++part) {
        expect_same_bits_for_any_thread_count([&](Context& context) {
          const std::int64_t width = shape.back(0);
          const Tensor x = make_tensor(context, shape, random_values(shape.numel(), 9), dtype);
          const Tensor w = make_tensor(context, {width}, random_values(width, 10), dtype);
          const auto r = ops::rms_norm(x, x, w, kEps);
          if (part == 0) return r.y;
          if (part == 1) return ops::rms_norm_backward(r.y, x, r.sum, w, r.rstd);
          const Tensor dw = Tensor::zeros(context, {width}, dtype);
          ops::rms_norm_weight_backward(dw, r.y, r.sum, r.rstd);
          return dw;
        });
      }
    }
  }
}

TEST(RmsNormErrorTest, NamesShapesAndDtypes) {
  const auto context = make_context();
  const auto zeros = [&](const Shape& shape, DType dtype = DType::kF32) {
    return Tensor::zeros(*context, shape, dtype);
  };
  const Tensor x = zeros({2, 3});
  const Tensor w = zeros({3});
  expect_error(
      [&] {
        ops::rms_norm(zeros({2, 0}), {}, zeros({0}), kEps);
      },
      ErrorCode::kShape, {"rms_norm", "[2, 0]"});
  expect_error([&] { ops::rms_norm(x, {}, zeros({4}), kEps); }, ErrorCode::kShape,
               {"rms_norm", "weight", "[3]", "[4]"});
  expect_error(
      [&] {
        ops::rms_norm(x, zeros({3, 2}), w, kEps);
      },
      ErrorCode::kShape, {"residual", "[2, 3]", "[3, 2]"});
  expect_error([&] { ops::rms_norm(x, {}, zeros({3}, DType::kF64), kEps); }, ErrorCode::kDType,
               {"weight", "f32", "f64"});
  expect_error([&] { ops::rms_norm_backward(x, {}, x, w, zeros({3})); }, ErrorCode::kShape,
               {"rms_norm_backward", "rstd", "[2]", "[3]"});
  expect_error([&] { ops::rms_norm_backward(x, zeros({2}), x, w, zeros({2})); }, ErrorCode::kShape,
               {"rms_norm_backward", "dsum"});
  expect_error([&] { ops::rms_norm_weight_backward(zeros({4}), x, x, zeros({2})); },
               ErrorCode::kShape, {"rms_norm_weight_backward", "[3]", "[4]"});
}

}  // namespace
}  // namespace tessera

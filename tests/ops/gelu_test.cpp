// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/gelu.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "op_cases.hpp"
#include "reference_basic.hpp"

namespace tessera {
namespace {

using namespace testing;

class GeluTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(GeluTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Values x = random_values(shape.numel(), 1, 2.0);
  const Values dy = random_values(shape.numel(), 2);
  const Tensor input = make_tensor(*context, shape, x, dtype, layout);
  const Tensor gradient = make_tensor(*context, shape, dy, dtype, layout);
  Values y, dx;
  for (std::size_t i = 0; i < x.size(); ++i) {
    y.push_back(reference::gelu(x[i]));
    dx.push_back(dy[i] * reference::gelu_gradient(x[i]));
  }
  expect_close(values_of(ops::gelu(input)), y, tolerance(dtype));
  expect_close(values_of(ops::gelu_backward(input, gradient)), dx, tolerance(dtype));
}

INSTANTIATE_TEST_SUITE_P(Cases, GeluTest, ::testing::ValuesIn(op_cases()), case_name);

/// Largest |y - reference| / |reference| over [-12, 12], where |reference| > `least`.
double worst_relative_error(DType dtype, double least) {
  const auto context = make_context();
  Values x;
  for (int i = -120000; i <= 120000; ++i)
    x.push_back(static_cast<double>(static_cast<float>(i) * 1e-4F));
  const Values y =
      values_of(ops::gelu(make_tensor(*context, {static_cast<std::int64_t>(x.size())}, x, dtype)));
  double worst = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = reference::gelu(x[i]);
    if (std::abs(expected) > least) {
      worst = std::max(worst, std::abs(y[i] - expected) / std::abs(expected));
    }
  }
  return worst;
}

TEST(GeluAccuracyTest, IsRelativelyAccurateInTheTails) {
  EXPECT_LT(worst_relative_error(DType::kF32, 1e-37), 4e-7);
  EXPECT_LT(worst_relative_error(DType::kF64, 1e-300), 1e-13);
}

TEST(GeluGradientTest, MatchesFiniteDifferences) {
  const auto context = make_context();
  const Values x = random_values(37, 3, 2.0);
  const Values dy = random_values(37, 4);
  const auto loss = [&](const Values& v) {
    return dot(values_of(ops::gelu(make_tensor(*context, {37}, v))), dy);
  };
  const Tensor dx =
      ops::gelu_backward(make_tensor(*context, {37}, x), make_tensor(*context, {37}, dy));
  expect_close(values_of(dx), numeric_gradient(loss, x), 1e-9);
}

TEST(GeluIdentityTest, DiffersFromItsMirrorByX) {
  const auto context = make_context();
  const Values x = random_values(1001, 5, 3.0);
  Values mirrored = x;
  for (double& v : mirrored) v = -v;
  const Values a = values_of(ops::gelu(make_tensor(*context, {1001}, x)));
  const Values b = values_of(ops::gelu(make_tensor(*context, {1001}, mirrored)));
  Values difference(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) difference[i] = a[i] - b[i];
  expect_close(difference, x, 1e-14);
}

TEST(GeluExtremesTest, HasItsLimitsAndKeepsNaN) {
  const auto context = make_context();
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const Tensor x = make_tensor(*context, {6}, {-1e30, -1e4, 0.0, 1e4, inf, nan}, dtype);
    expect_close(values_of(ops::gelu(x)), {0.0, 0.0, 0.0, 1e4, inf, nan}, 1e-6);
    const Tensor far = make_tensor(*context, {3}, {-1e4, 0.0, 1e4}, dtype);
    const Tensor one = make_tensor(*context, {3}, {1.0, 1.0, 1.0}, dtype);
    expect_close(values_of(ops::gelu_backward(far, one)), {0.0, 0.5, 1.0}, 1e-6);
  }
}

TEST(GeluThreadsTest, BitsDoNotDependOnThem) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    expect_same_bits_for_any_thread_count([dtype](Context& context) {
      const Tensor x = make_tensor(context, {30011}, random_values(30011, 6, 3.0), dtype);
      return ops::gelu(x);
    });
    expect_same_bits_for_any_thread_count([dtype](Context& context) {
      const Tensor x = make_tensor(context, {30011}, random_values(30011, 6, 3.0), dtype);
      return ops::gelu_backward(x, x);
    });
  }
}

TEST(GeluErrorTest, NamesShapesAndDtypes) {
  const auto context = make_context();
  const Tensor x = Tensor::zeros(*context, {2, 3}, DType::kF32);
  expect_error(
      [&] {
        ops::gelu_backward(x, Tensor::zeros(*context, {3, 2}, DType::kF32));
      },
      ErrorCode::kShape, {"gelu_backward", "[2, 3]", "[3, 2]"});
  expect_error(
      [&] {
        ops::gelu_backward(x, Tensor::zeros(*context, {2, 3}, DType::kF64));
      },
      ErrorCode::kDType, {"gelu_backward", "f32", "f64"});
  expect_error([&] { ops::gelu(Tensor::zeros(*context, {2}, DType::kI32)); }, ErrorCode::kDType,
               {"gelu", "i32"});
}

}  // namespace
}  // namespace tessera

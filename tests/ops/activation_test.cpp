// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/activation.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "op_cases.hpp"
#include "reference_basic.hpp"

namespace tessera {
namespace {

using namespace testing;
using ops::Activation;

constexpr Activation kKinds[] = {Activation::kGelu, Activation::kGeluErf, Activation::kSilu,
                                 Activation::kRelu};

class ActivationTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(ActivationTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Values x = random_values(shape.numel(), 1, 2.0, dtype);
  const Values dy = random_values(shape.numel(), 2, 1.0, dtype);
  const Tensor input = make_tensor(*context, shape, x, dtype, layout);
  const Tensor gradient = make_tensor(*context, shape, dy, dtype, layout);
  for (const Activation kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    Values y, dx;
    for (std::size_t i = 0; i < x.size(); ++i) {
      y.push_back(reference::activation(x[i], kind));
      dx.push_back(dy[i] * reference::activation_slope(x[i], kind));
    }
    expect_close(values_of(ops::activation(input, kind)), y, tolerance(dtype));
    expect_close(values_of(ops::activation_backward(input, gradient, kind)), dx, tolerance(dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ActivationTest, ::testing::ValuesIn(computed_cases()), case_name);

/// Largest |y - reference| / |reference| over [-12, 12], where |reference| > `least`.
double worst_relative_error(Activation kind, DType dtype, double least) {
  const auto context = make_context();
  Values x;
  for (int i = -120000; i <= 120000; ++i) {
    x.push_back(static_cast<double>(static_cast<float>(i) * 1e-4F));
  }
  const Shape shape{static_cast<std::int64_t>(x.size())};
  const Values y = values_of(ops::activation(make_tensor(*context, shape, x, dtype), kind));
  double worst = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = reference::activation(x[i], kind);
    if (std::abs(expected) > least) {
      worst = std::max(worst, std::abs(y[i] - expected) / std::abs(expected));
    }
  }
  return worst;
}

TEST(ActivationAccuracyTest, IsRelativelyAccurateInTheTails) {
  for (const Activation kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    EXPECT_LT(worst_relative_error(kind, DType::kF32, 1e-37), 6e-7);
    EXPECT_LT(worst_relative_error(kind, DType::kF64, 1e-300), 1e-13);
  }
}

TEST(ActivationGradientTest, MatchesFiniteDifferences) {
  const auto context = make_context();
  const Values x = random_values(37, 3, 2.0);
  const Values dy = random_values(37, 4);
  for (const Activation kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto loss = [&](const Values& v) {
      return dot(values_of(ops::activation(make_tensor(*context, {37}, v), kind)), dy);
    };
    const Tensor dx = ops::activation_backward(make_tensor(*context, {37}, x),
                                               make_tensor(*context, {37}, dy), kind);
    expect_close(values_of(dx), numeric_gradient(loss, x), 1e-9);
  }
}

/// f(x) - f(-x) = x for all of them.
TEST(ActivationIdentityTest, DiffersFromItsMirrorByX) {
  const auto context = make_context();
  const Values x = random_values(1001, 5, 3.0);
  Values mirrored = x;
  for (double& v : mirrored) v = -v;
  for (const Activation kind : kKinds) {
    const Values a = values_of(ops::activation(make_tensor(*context, {1001}, x), kind));
    const Values b = values_of(ops::activation(make_tensor(*context, {1001}, mirrored), kind));
    Values difference(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) difference[i] = a[i] - b[i];
    expect_close(difference, x, 1e-14);
  }
}

TEST(ActivationExtremesTest, HaveTheirLimitsAndKeepNaN) {
  const auto context = make_context();
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const Activation kind : kKinds) {
      SCOPED_TRACE(static_cast<int>(kind));
      const Tensor x = make_tensor(*context, {6}, {-1e30, -8192.0, 0.0, 8192.0, inf, nan}, dtype);
      expect_close(values_of(ops::activation(x, kind)), {0.0, 0.0, 0.0, 8192.0, inf, nan}, 1e-6);
      const Tensor far = make_tensor(*context, {3}, {-8192.0, 0.0, 8192.0}, dtype);
      const Tensor one = make_tensor(*context, {3}, {1.0, 1.0, 1.0}, dtype);
      const double middle = kind == Activation::kRelu ? 0.0 : 0.5;
      expect_close(values_of(ops::activation_backward(far, one, kind)), {0.0, middle, 1.0}, 1e-6);
    }
  }
}

TEST(ActivationThreadsTest, BitsDoNotDependOnThem) {
  for (const Activation kind : kKinds) {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
      expect_same_bits_for_any_thread_count([&](Context& context) {
        const Tensor x = make_tensor(context, {30011}, random_values(30011, 6, 3.0), dtype);
        return ops::activation(x, kind);
      });
      expect_same_bits_for_any_thread_count([&](Context& context) {
        const Tensor x = make_tensor(context, {30011}, random_values(30011, 6, 3.0), dtype);
        return ops::activation_backward(x, x, kind);
      });
    }
  }
}

TEST(ActivationErrorTest, NamesShapesAndDtypes) {
  const auto context = make_context();
  const Tensor x = Tensor::zeros(*context, {2, 3}, DType::kF32);
  const auto backward_of = [&](const Shape& shape, DType dtype) {
    ops::activation_backward(x, Tensor::zeros(*context, shape, dtype), Activation::kSilu);
  };
  expect_error(
      [&] {
        backward_of({3, 2}, DType::kF32);
      },
      ErrorCode::kShape, {"activation_backward", "[2, 3]", "[3, 2]"});
  expect_error(
      [&] {
        backward_of({2, 3}, DType::kF64);
      },
      ErrorCode::kDType, {"activation_backward", "f32", "f64"});
  expect_error(
      [&] { ops::activation(Tensor::zeros(*context, {2}, DType::kI32), Activation::kRelu); },
      ErrorCode::kDType, {"activation", "i32"});
}

}  // namespace
}  // namespace tessera

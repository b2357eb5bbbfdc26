// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/adamw.hpp"

#include <gtest/gtest.h>

#include "op_cases.hpp"

namespace tessera {
namespace {

using namespace testing;
using ops::AdamWOptions;
using ops::AdamWState;

AdamWState make_state(Context& context, const Shape& shape, const Values& parameter,
                      const Values& gradient, DType dtype, double weight_decay) {
  return {make_tensor(context, shape, parameter, dtype),
          make_tensor(context, shape, gradient, dtype), Tensor::zeros(context, shape, dtype),
          Tensor::zeros(context, shape, dtype), weight_decay};
}

/// The published algorithm (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, with decoupled
/// decay scaled by the learning rate), one element at a time.
struct ReferenceAdamW {
  Values p, m, v;
  explicit ReferenceAdamW(const Values& parameter)
      : p(parameter), m(parameter.size()), v(parameter.size()) {}
  void step(const Values& gradient, const AdamWOptions& o, double weight_decay) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = o.grad_scale * gradient[i];
      m[i] = o.beta1 * m[i] + (1.0 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1.0 - o.beta2) * g * g;
      const double m_hat = m[i] / (1.0 - std::pow(o.beta1, static_cast<double>(o.step)));
      const double v_hat = v[i] / (1.0 - std::pow(o.beta2, static_cast<double>(o.step)));
      p[i] = p[i] * (1.0 - o.lr * weight_decay) - o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
  }
};

class AdamWTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(AdamWTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Values parameter = random_values(shape.numel(), 1);
  ReferenceAdamW expected(parameter);
  const AdamWState state = make_state(*context, shape, parameter, parameter, dtype, 0.1);
  for (std::int64_t step = 1; step <= 4; ++step) {
    const Values gradient = random_values(shape.numel(), 10 + static_cast<std::uint64_t>(step));
    if (dtype == DType::kF64) write<double>(state.gradient, gradient);
    if (dtype == DType::kF32) write<float>(state.gradient, gradient);
    const AdamWOptions options{
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .grad_scale = 0.5, .step = step};
    ops::adamw(std::vector{state}, options);
    expected.step(gradient, options, 0.1);
  }
  expect_close(values_of(state.parameter), expected.p, tolerance(dtype, 1e-13, 5e-7));
  expect_close(values_of(state.m), expected.m, tolerance(dtype, 1e-13, 5e-7));
  expect_close(values_of(state.v), expected.v, tolerance(dtype, 1e-13, 5e-7));
}

std::vector<OpCase> dense_cases() {
  std::vector<OpCase> cases = op_cases();
  std::erase_if(cases, [](const OpCase& c) { return c.layout != Layout::kDense; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, AdamWTest, ::testing::ValuesIn(dense_cases()), case_name);

/// Parameters after `steps` steps from (1, -2, 0.5) with gradients t (0.1, -0.2, 0.3), lr 0.1.
Values golden_run(int steps, AdamWOptions options, double weight_decay) {
  const auto context = make_context();
  const AdamWState state =
      make_state(*context, {3}, {1.0, -2.0, 0.5}, {0.0, 0.0, 0.0}, DType::kF64, weight_decay);
  options.lr = 0.1;
  for (int t = 1; t <= steps; ++t) {
    write<double>(state.gradient, {0.1 * t, -0.2 * t, 0.3 * t});
    options.step = t;
    ops::adamw(std::vector{state}, options);
  }
  return values_of(state.parameter);
}

// Recorded from torch.optim.AdamW in f64. A large eps shows whether it is added inside the root,
// before or after the bias correction.
TEST(AdamWGoldenTest, MatchesPyTorch) {
  expect_close(golden_run(3, {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, 0.0),
               {0.707681695545, -1.707681685276, 0.207681681854}, 1e-12);
  expect_close(golden_run(3, {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, 0.1),
               {0.682997433956, -1.653296423924, 0.19784792058}, 1e-12);
  expect_close(golden_run(1, {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-2}, 0.0),
               {0.909090909091, -1.904761904762, 0.403225806452}, 1e-12);
  expect_close(golden_run(3, {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-2}, 0.0),
               {0.728620379045, -1.719533889791, 0.216354370464}, 1e-12);
}

TEST(AdamWIdentityTest, FirstStepHasTheLengthOfTheLearningRate) {
  for (const double scale : {1e-3, 1.0, 1e3}) {
    const auto context = make_context();
    const AdamWState state =
        make_state(*context, {2}, {1.0, 1.0}, {scale, -scale}, DType::kF64, 0.0);
    ops::adamw(std::vector{state}, {.lr = 0.25, .eps = 0.0});
    expect_close(values_of(state.parameter), {0.75, 1.25}, 1e-14);
  }
}

TEST(AdamWIdentityTest, ZeroGradientOnlyDecays) {
  const auto context = make_context();
  const AdamWState state = make_state(*context, {2}, {2.0, -3.0}, {0.0, 0.0}, DType::kF64, 0.5);
  ops::adamw(std::vector{state}, {.lr = 0.1});
  expect_close(values_of(state.parameter), {1.9, -2.85}, 1e-15);
}

TEST(AdamWTensorsTest, AreUpdatedAsIfAloneWithTheirOwnDecay) {
  const auto context = make_context(3);
  const std::vector<std::int64_t> sizes = {1, 0, 100000, 3, 70001};
  std::vector<AdamWState> together;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const DType dtype = i % 2 == 0 ? DType::kF32 : DType::kF64;
    together.push_back(make_state(*context, {sizes[i]}, random_values(sizes[i], i),
                                  random_values(sizes[i], 20 + i), dtype,
                                  0.1 * static_cast<double>(i)));
  }
  std::vector<AdamWState> alone;
  for (const AdamWState& s : together) {
    alone.push_back(make_state(*context, s.parameter.shape(), values_of(s.parameter),
                               values_of(s.gradient), s.parameter.dtype(), s.weight_decay));
  }
  ops::adamw(together, {.lr = 0.01});
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ops::adamw(std::vector{alone[i]}, {.lr = 0.01});
    EXPECT_EQ(values_of(together[i].parameter), values_of(alone[i].parameter)) << "tensor " << i;
  }
}

TEST(AdamWTensorsTest, VersionOfTheParameterIsBumped) {
  const auto context = make_context();
  const AdamWState state = make_state(*context, {1}, {1.0}, {1.0}, DType::kF32, 0.0);
  const auto version = state.parameter.storage()->version();
  ops::adamw(std::vector{state}, {.lr = 0.1});
  EXPECT_GT(state.parameter.storage()->version(), version);
  ops::adamw({}, {.lr = 0.1});
}

TEST(AdamWThreadsTest, BitsDoNotDependOnThem) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    expect_same_bits_for_any_thread_count([dtype](Context& context) {
      const AdamWState state = make_state(context, {200003}, random_values(200003, 1),
                                          random_values(200003, 2), dtype, 0.1);
      ops::adamw(std::vector{state}, {.lr = 0.01});
      return state.parameter;
    });
  }
}

TEST(AdamWErrorTest, NamesWhatDoesNotFit) {
  const auto context = make_context();
  const AdamWState good = make_state(*context, {2}, {1.0, 1.0}, {1.0, 1.0}, DType::kF32, 0.0);
  AdamWState bad = good;
  bad.gradient = Tensor::zeros(*context, {3}, DType::kF32);
  expect_error([&] { ops::adamw(std::vector{bad}, {}); }, ErrorCode::kShape,
               {"adamw", "[2]", "[3]"});
  bad.gradient = Tensor::zeros(*context, {2}, DType::kF64);
  expect_error([&] { ops::adamw(std::vector{bad}, {}); }, ErrorCode::kDType,
               {"adamw", "f32", "f64"});
  expect_error([&] { ops::adamw(std::vector{good}, {.step = 0}); }, ErrorCode::kInvalidArgument,
               {"adamw", "0"});
}

}  // namespace
}  // namespace tessera

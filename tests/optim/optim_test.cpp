// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/core/context.hpp"
#include "tessera/core/error.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/optim/clip.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera {
namespace {

TEST(WarmupCosineTest, MatchesTheRecordedCurve) {
  // torch CosineAnnealingLR, T = 10, minimum 0.1.
  const double expected[] = {1,       .977975, .914058, .814503, .689058, .55,
                             .410942, .285497, .185942, .122025, .1};
  const optim::WarmupCosine schedule{1.0, 0.1, 0, 10};
  for (int t = 0; t <= 10; ++t) EXPECT_NEAR(schedule.at(t), expected[t], 1e-6) << t;
}

TEST(WarmupCosineTest, WarmsUpLinearlyToThePeak) {
  const optim::WarmupCosine schedule{2.0, 0.0, 4, 10};
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(1), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(3), 2.0);
  EXPECT_DOUBLE_EQ(schedule.at(4), 2.0);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 0.0);
}

TEST(WarmupCosineTest, RejectsRangesThatCannotBe) {
  EXPECT_THROW((optim::WarmupCosine{-1.0, 0.0, 0, 10}.validate()), Error);
  EXPECT_THROW((optim::WarmupCosine{1.0, 2.0, 0, 10}.validate()), Error);
  EXPECT_THROW((optim::WarmupCosine{1.0, 0.0, 11, 10}.validate()), Error);
  EXPECT_THROW((optim::WarmupCosine{std::nan(""), 0.0, 0, 10}.validate()), Error);
}

spmd::ParameterPtr make_parameter(Context& context, const std::vector<double>& values) {
  auto parameter = std::make_shared<spmd::Parameter>();
  parameter->name = "w";
  const Shape shape{static_cast<std::int64_t>(values.size())};
  parameter->placement.global_shape = shape;
  parameter->variable =
      autograd::Variable::parameter(Tensor::from(context, shape, values), {}, "w");
  return parameter;
}

TEST(AdamWTest, MatchesTheRecordedUpdates) {
  // torch AdamW(lr .1, betas (.9, .95), eps 1e-8, weight decay .1) on g_t = t (.1, -.2, .3).
  const auto context = Context::create();
  const auto parameter = make_parameter(*context, {1.0, -2.0, 0.5});
  optim::AdamW optimizer({parameter}, {0.9, 0.95, 1e-8, 0.1});
  for (int t = 1; t <= 3; ++t) {
    parameter->variable.set_grad(
        Tensor::from(*context, {3}, std::vector<double>{t * .1, t * -.2, t * .3}), {});
    optimizer.step(0.1);
  }
  const std::vector<double> w = parameter->variable.value().to_vector<double>();
  EXPECT_NEAR(w[0], .682997433956, 1e-11);
  EXPECT_NEAR(w[1], -1.653296423924, 1e-11);
  EXPECT_NEAR(w[2], .19784792058, 1e-11);
}

TEST(AdamWTest, DecaysOnlyWhatDecays) {
  const auto context = Context::create();
  const auto decays = make_parameter(*context, {1.0});
  const auto rests = make_parameter(*context, {1.0});
  rests->decay = spmd::WeightDecay::kNo;
  optim::AdamW optimizer({decays, rests}, {0.9, 0.95, 1e-8, 0.5});
  const Tensor zero = Tensor::zeros(*context, {1}, DType::kF64);
  decays->variable.set_grad(zero, {});
  rests->variable.set_grad(zero, {});
  optimizer.step(0.1);
  EXPECT_DOUBLE_EQ(decays->variable.value().item(), 0.95);
  EXPECT_DOUBLE_EQ(rests->variable.value().item(), 1.0);
}

TEST(AdamWTest, RefusesAStepWithoutAnyGradient) {
  const auto context = Context::create();
  optim::AdamW optimizer({make_parameter(*context, {1.0, 2.0})}, {});
  try {
    optimizer.step(1e-3);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(error.message().find("call backward"), std::string::npos);
  }
  EXPECT_EQ(optimizer.steps(), 0);
}

TEST(GradientNormTest, IsTheRootOfTheSumOfSquares) {
  const auto context = Context::create();
  const auto a = make_parameter(*context, {0.0, 0.0});
  const auto b = make_parameter(*context, {0.0});
  a->variable.set_grad(Tensor::from(*context, {2}, std::vector<double>{3.0, 4.0}), {});
  b->variable.set_grad(Tensor::from(*context, {1}, std::vector<double>{12.0}), {});
  const spmd::ParameterPtr all[] = {a, b};
  EXPECT_DOUBLE_EQ(optim::gradient_norm(all, nullptr), 13.0);
}

TEST(ClipTest, ScalesDownOnlyAboveTheLimit) {
  EXPECT_DOUBLE_EQ(optim::clip_coefficient(0.5, 1.0), 1.0);
  EXPECT_NEAR(optim::clip_coefficient(4.0, 1.0), 0.25, 1e-6);
  EXPECT_DOUBLE_EQ(optim::clip_coefficient(4.0, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(optim::clip_coefficient(INFINITY, 1.0), 0.0);
  EXPECT_DOUBLE_EQ(optim::clip_coefficient(std::nan(""), 1.0), 0.0);
}

}  // namespace
}  // namespace tessera

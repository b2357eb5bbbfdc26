// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/cross_entropy.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "op_cases.hpp"
#include "reference_basic.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera {
namespace {

using namespace testing;

std::vector<std::int32_t> some_targets(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < count; ++i) {
    targets.push_back(i % 4 == 3 ? ops::kIgnoreIndex
                                 : static_cast<std::int32_t>(i * 7 % vocabulary));
  }
  return targets;
}

const std::vector<ops::CrossEntropyOptions>& all_options() {
  static const std::vector<ops::CrossEntropyOptions> all{
      {}, {.label_smoothing = 0.1}, {.soft_cap = 2.5}, {.label_smoothing = 0.3, .soft_cap = 5.0}};
  return all;
}

class CrossEntropyTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(CrossEntropyTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Shape lead = shape.slice(0, shape.rank() - 1);
  const Values x = random_values(shape.numel(), 1, 3.0);
  const auto targets = some_targets(lead.numel(), shape.back(0));
  const Tensor logits = make_tensor(*context, shape, x, dtype, layout);
  const Tensor labels = Tensor::from(*context, lead, targets);
  for (const ops::CrossEntropyOptions& options : all_options()) {
    const auto expected = reference::cross_entropy(x, targets, options);
    const auto result = ops::cross_entropy(logits, labels, options);
    // tanh subtracts from 1, so that a capped logit has the rounding of the cap.
    const double close = tolerance(dtype) * (options.soft_cap > 0.0 ? 3.0 : 1.0);
    expect_close(values_of(result.losses), expected.losses, close);
    expect_close(values_of(result.lse), expected.lse, close);
    double sum = 0.0;
    for (const double loss : expected.losses) sum += loss;
    EXPECT_NEAR(result.sum.item(), sum, close * std::max(1.0, sum));
    EXPECT_EQ(result.losses.shape(), lead);
    Values gradient = expected.gradient;
    for (double& g : gradient) g *= 0.25;
    const Tensor dx = ops::cross_entropy_backward(0.25, logits, labels, result.lse, options);
    expect_close(values_of(dx), gradient, close);
    const Tensor in_place = ops::copy(logits);
    const auto version = in_place.storage()->version();
    ops::cross_entropy_backward_(0.25, in_place, labels, result.lse, options);
    EXPECT_EQ(values_of(in_place), values_of(dx));
    EXPECT_GT(in_place.storage()->version(), version);
  }
}

std::vector<OpCase> cases_with_a_vocabulary() {
  std::vector<OpCase> cases = op_cases(1);
  std::erase_if(cases, [](const OpCase& c) { return c.shape.back(0) == 0; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, CrossEntropyTest, ::testing::ValuesIn(cases_with_a_vocabulary()),
                         case_name);

TEST(CrossEntropyGradientTest, MatchesFiniteDifferences) {
  const auto context = make_context();
  const Values x = random_values(5 * 7, 2);
  const Tensor labels = Tensor::from<std::int32_t>(*context, {5}, {0, 6, -1, 3, 3});
  for (const ops::CrossEntropyOptions& options : all_options()) {
    const auto loss = [&](const Values& v) {
      const Tensor logits = make_tensor(*context, {5, 7}, v);
      return 1.5 * ops::cross_entropy(logits, labels, options).sum.item();
    };
    const Tensor logits = make_tensor(*context, {5, 7}, x);
    const auto forward = ops::cross_entropy(logits, labels, options);
    expect_close(values_of(ops::cross_entropy_backward(1.5, logits, labels, forward.lse, options)),
                 numeric_gradient(loss, x), 1e-9);
  }
}

TEST(CrossEntropyErrorTest, OptionsHaveRanges) {
  const auto context = make_context();
  const Tensor logits = Tensor::zeros(*context, {1, 3}, DType::kF32);
  const Tensor labels = Tensor::from<std::int32_t>(*context, {1}, {0});
  expect_error([&] { ops::cross_entropy(logits, labels, {.label_smoothing = 1.5}); },
               ErrorCode::kInvalidArgument, {"label_smoothing", "1.5"});
  expect_error([&] { ops::cross_entropy(logits, labels, {.soft_cap = -1.0}); },
               ErrorCode::kInvalidArgument, {"soft_cap", "-1"});
}

TEST(CrossEntropyIdentityTest, IsInvariantToShift) {
  const auto context = make_context();
  Values x = random_values(6 * 5003, 3);
  const Tensor labels = Tensor::from(*context, {6}, some_targets(6, 5003));
  const Values before =
      values_of(ops::cross_entropy(make_tensor(*context, {6, 5003}, x), labels).losses);
  for (double& v : x) v += 1000.0;
  expect_close(values_of(ops::cross_entropy(make_tensor(*context, {6, 5003}, x), labels).losses),
               before, 1e-12);
}

TEST(CrossEntropyIdentityTest, OfEqualLogitsIsTheLogOfTheVocabulary) {
  const auto context = make_context();
  for (const std::int64_t vocabulary : {1, 2, 50257}) {
    const Tensor logits = make_tensor(
        *context, {1, vocabulary}, Values(static_cast<std::size_t>(vocabulary), -7.5), DType::kF32);
    const Tensor labels = Tensor::from<std::int32_t>(*context, {1}, {0});
    EXPECT_NEAR(ops::cross_entropy(logits, labels).sum.item(),
                std::log(static_cast<double>(vocabulary)), 1e-6);
  }
}

TEST(CrossEntropyIdentityTest, GradientRowsSumToZero) {
  const auto context = make_context();
  const Tensor logits = make_tensor(*context, {4, 3001}, random_values(4 * 3001, 4, 5.0));
  const Tensor labels = Tensor::from<std::int32_t>(*context, {4}, {0, 3000, 17, -1});
  const auto forward = ops::cross_entropy(logits, labels);
  const Values dx = values_of(ops::cross_entropy_backward(1.0, logits, labels, forward.lse));
  for (std::size_t row = 0; row < 4; ++row) {
    const auto* first = dx.data() + row * 3001;
    EXPECT_NEAR(std::accumulate(first, first + 3001, 0.0), 0.0, 1e-12);
  }
}

TEST(CrossEntropyExtremesTest, HugeAndMaskedLogitsGiveNoNaN) {
  const auto context = make_context();
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const Tensor logits = make_tensor(*context, {3, 4},
                                      {1e4, -1e4, 0.0, 1e4,      // two of four
                                       -inf, -inf, 2.0, -inf,    // one of four
                                       -1e4, -1e4, -1e4, -1e4},  // all alike
                                      dtype);
    const Tensor labels = Tensor::from<std::int32_t>(*context, {3}, {1, 2, 0});
    const auto result = ops::cross_entropy(logits, labels);
    expect_close(values_of(result.losses), {2e4 + std::log(2.0), 0.0, std::log(4.0)}, 1e-7);
    const Tensor dx = ops::cross_entropy_backward(1.0, logits, labels, result.lse);
    const double close = dtype == DType::kF64 ? 1e-11 : 1e-3;  // of lse = 1e4 an ulp is 1e-3
    expect_close(values_of(dx), {0.5, -1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, -0.75, 0.25, 0.25, 0.25},
                 close);
  }
}

TEST(CrossEntropyExtremesTest, MaskedBlocksBeforeTheFirstLogitCountNothing) {
  const auto context = make_context();
  const double inf = std::numeric_limits<double>::infinity();
  Values x(9000, -inf);
  x[8000] = 1.0;
  x[8500] = 1.0;
  const Tensor labels = Tensor::from<std::int32_t>(*context, {1}, {8500});
  const auto result = ops::cross_entropy(make_tensor(*context, {1, 9000}, x), labels);
  EXPECT_NEAR(result.sum.item(), std::log(2.0), 1e-14);
}

TEST(CrossEntropyExtremesTest, NaNStays) {
  const auto context = make_context();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::size_t at : {std::size_t{0}, std::size_t{3333}, std::size_t{4999}}) {
    Values x = random_values(5000, 5);
    x[at] = nan;
    for (const DType dtype : {DType::kF64, DType::kF32}) {
      const Tensor labels = Tensor::from<std::int32_t>(*context, {1}, {1});
      const Tensor logits = make_tensor(*context, {1, 5000}, x, dtype);
      EXPECT_TRUE(std::isnan(ops::cross_entropy(logits, labels).sum.item()));
    }
  }
}

TEST(CrossEntropyIgnoredTest, TokensGiveZeroLossAndGradientEvenOfNaN) {
  const auto context = make_context();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor logits = make_tensor(*context, {2, 2}, {nan, nan, 0.0, 0.0});
  const Tensor labels = Tensor::from<std::int32_t>(*context, {2}, {5, 1});
  const auto result = ops::cross_entropy(logits, labels, {.ignore_index = 5});
  EXPECT_DOUBLE_EQ(result.sum.item(), std::log(2.0));
  expect_close(
      values_of(ops::cross_entropy_backward(1.0, logits, labels, result.lse, {.ignore_index = 5})),
      {0.0, 0.0, 0.5, -0.5}, 1e-15);
  EXPECT_EQ(ops::count_targets(labels, 5), 1);
  EXPECT_EQ(ops::count_targets(labels), 2);
}

TEST(CrossEntropyErrorTest, NamesTheTargetOutsideTheVocabulary) {
  const auto context = make_context();
  const Tensor logits = Tensor::zeros(*context, {3, 4}, DType::kF32);
  for (const std::int32_t bad : {4, -2, 1000}) {
    const Tensor labels = Tensor::from<std::int32_t>(*context, {3}, {0, 1, bad});
    const std::vector<std::string> words = {"cross_entropy", std::to_string(bad), "position 2",
                                            "4"};
    expect_error([&] { ops::cross_entropy(logits, labels); }, ErrorCode::kInvalidArgument, words);
  }
}

TEST(CrossEntropyErrorTest, NamesShapesAndDtypes) {
  const auto context = make_context();
  const Tensor logits = Tensor::zeros(*context, {3, 4}, DType::kF32);
  const Tensor labels = Tensor::zeros(*context, {3}, DType::kI32);
  expect_error([&] { ops::cross_entropy(logits, Tensor::zeros(*context, {4}, DType::kI32)); },
               ErrorCode::kShape, {"cross_entropy", "[3, 4]", "[4]"});
  expect_error(
      [&] {
        ops::cross_entropy(Tensor::zeros(*context, {3, 0}, DType::kF32), labels);
      },
      ErrorCode::kShape, {"cross_entropy", "[3, 0]"});
  expect_error([&] { ops::cross_entropy(logits, Tensor::zeros(*context, {3}, DType::kI64)); },
               ErrorCode::kDType, {"cross_entropy", "i32", "i64"});
  expect_error(
      [&] {
        ops::cross_entropy_backward(1.0, logits, labels, Tensor::zeros(*context, {3}, DType::kF64));
      },
      ErrorCode::kDType, {"cross_entropy_backward", "lse", "f32", "f64"});
}

TEST(CrossEntropyThreadsTest, BitsDoNotDependOnThem) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const auto run = [dtype](Context& context, bool is_backward) {
      const Tensor logits = make_tensor(context, {501, 67}, random_values(501 * 67, 6, 3.0), dtype);
      const Tensor labels = Tensor::from(context, {501}, some_targets(501, 67));
      const auto forward = ops::cross_entropy(logits, labels);
      return is_backward ? ops::cross_entropy_backward(0.3, logits, labels, forward.lse)
                         : forward.sum;
    };
    expect_same_bits_for_any_thread_count([&](Context& c) { return run(c, false); });
    expect_same_bits_for_any_thread_count([&](Context& c) { return run(c, true); });
  }
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/scale.hpp"

#include <gtest/gtest.h>

#include "op_cases.hpp"

namespace tessera {
namespace {

using namespace testing;

class ScaleTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(ScaleTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  Values x = random_values(shape.numel(), 1, 1.0, dtype);
  const Tensor input = make_tensor(*context, shape, x, dtype, layout);
  const Tensor in_place = make_tensor(*context, shape, x, dtype);
  const Tensor y = ops::scale(input, -1.7);
  EXPECT_EQ(values_of(input), x);
  ops::scale_(in_place, -1.7);
  for (double& v : x) v *= -1.7;
  expect_close(values_of(y), x, tolerance(dtype, 1e-15, 2e-7));
  EXPECT_EQ(values_of(in_place), values_of(y));
}

INSTANTIATE_TEST_SUITE_P(Cases, ScaleTest, ::testing::ValuesIn(computed_cases()), case_name);

TEST(ScaleInPlaceTest, BumpsTheVersionAndNeedsAContiguousTensor) {
  const auto context = make_context();
  const Tensor x = make_tensor(*context, {2, 3}, Values(6, 1.0));
  const auto version = x.storage()->version();
  ops::scale_(x, 2.0);
  EXPECT_GT(x.storage()->version(), version);
  expect_error([&] { ops::scale_(x.transpose(0, 1), 2.0); }, ErrorCode::kInvalidArgument,
               {"scale_", "[3, 2]", "contiguous"});
  expect_error([&] { ops::scale(Tensor::zeros(*context, {1}, DType::kI64), 2.0); },
               ErrorCode::kDType, {"scale", "i64"});
}

TEST(ScaleThreadsTest, BitsDoNotDependOnThem) {
  expect_same_bits_for_any_thread_count([](Context& context) {
    return ops::scale(make_tensor(context, {70001}, random_values(70001, 2), DType::kF32), 0.1);
  });
}

}  // namespace
}  // namespace tessera

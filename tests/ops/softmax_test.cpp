// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/softmax.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "op_cases.hpp"
#include "reference_basic.hpp"

namespace tessera {
namespace {

using namespace testing;

class SoftmaxTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(SoftmaxTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Values x = random_values(shape.numel(), 1, 3.0, dtype);
  const Values dy = random_values(shape.numel(), 2, 1.0, dtype);
  const auto width = static_cast<std::size_t>(shape.back(0));
  Values y;
  for (std::size_t row = 0; row < x.size(); row += width) {
    const double lse = reference::log_sum_exp(x.data() + row, width);
    for (std::size_t i = 0; i < width; ++i) y.push_back(std::exp(x[row + i] - lse));
  }
  const Tensor out = ops::softmax(make_tensor(*context, shape, x, dtype, layout));
  expect_close(values_of(out), y, tolerance(dtype));
  // The gradient is a function of the rounded output.
  const Values rounded_y = values_of(out);
  Values dx(x.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    double mean = 0.0;
    for (std::size_t i = row; i < row + width; ++i) mean += rounded_y[i] * dy[i];
    for (std::size_t i = row; i < row + width; ++i) dx[i] = rounded_y[i] * (dy[i] - mean);
  }
  expect_close(
      values_of(ops::softmax_backward(out, make_tensor(*context, shape, dy, dtype, layout))), dx,
      tolerance(dtype));
}

INSTANTIATE_TEST_SUITE_P(Cases, SoftmaxTest, ::testing::ValuesIn(computed_cases(1)), case_name);

TEST(SoftmaxIdentityTest, RowsSumToOneAndIgnoreShifts) {
  const auto context = make_context();
  for (const double shift : {0.0, 1e4, -1e4}) {
    Values x = random_values(3 * 1000, 3, 2.0);
    for (double& v : x) v += shift;
    const Values y = values_of(ops::softmax(make_tensor(*context, {3, 1000}, x, DType::kF32)));
    for (std::size_t row = 0; row < 3; ++row) {
      double sum = 0.0;
      for (std::size_t i = 0; i < 1000; ++i) sum += y[row * 1000 + i];
      EXPECT_NEAR(sum, 1.0, 1e-5);
    }
  }
}

TEST(SoftmaxExtremesTest, MasksWithMinusInfinityAndKeepsNaN) {
  const auto context = make_context();
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const Tensor x =
        make_tensor(*context, {4, 3},
                    {0.0, -inf, 0.0, 1.0, nan, 2.0, -inf, -inf, -inf, 800.0, 0.0, -800.0}, dtype);
    expect_close(values_of(ops::softmax(x)),
                 {0.5, 0.0, 0.5, nan, nan, nan, nan, nan, nan, 1.0, 0.0, 0.0}, 1e-6);
  }
}

TEST(SoftmaxThreadsTest, BitsDoNotDependOnThem) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (int part = 0; part < 2; ++part) {
      expect_same_bits_for_any_thread_count([&](Context& context) {
        const Tensor y =
            ops::softmax(make_tensor(context, {301, 333}, random_values(301 * 333, 9), dtype));
        return part == 0 ? y : ops::softmax_backward(y, y);
      });
    }
  }
}

TEST(SoftmaxErrorTest, NamesShapesAndDtypes) {
  const auto context = make_context();
  const Tensor x = Tensor::zeros(*context, {2, 3}, DType::kF32);
  expect_error([&] { ops::softmax(Tensor::zeros(*context, {}, DType::kF32)); }, ErrorCode::kShape,
               {"softmax", "scalar"});
  expect_error(
      [&] {
        ops::softmax_backward(x, Tensor::zeros(*context, {3, 2}, DType::kF32));
      },
      ErrorCode::kShape, {"softmax_backward", "[2, 3]", "[3, 2]"});
  expect_error(
      [&] {
        ops::softmax_backward(x, Tensor::zeros(*context, {2, 3}, DType::kF64));
      },
      ErrorCode::kDType, {"softmax_backward", "f64"});
  expect_error([&] { ops::softmax(Tensor::zeros(*context, {2}, DType::kI32)); }, ErrorCode::kDType,
               {"softmax", "i32"});
}

}  // namespace
}  // namespace tessera

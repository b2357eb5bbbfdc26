// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "op_cases.hpp"

namespace tessera {
namespace {

using namespace testing;

/// Every element is added to the element of the result that it belongs to.
Values reference_sum(const Values& x, const Shape& shape, const std::vector<int>& dims) {
  const auto is_summed = [&dims](int d) {
    return std::find(dims.begin(), dims.end(), d) != dims.end();
  };
  std::int64_t size = 1;
  for (int d = 0; d < shape.rank(); ++d) size *= is_summed(d) ? 1 : shape[d];
  Values y(static_cast<std::size_t>(size));
  Shape index = Shape::filled(shape.rank(), 0);
  for (const double value : x) {
    std::int64_t at = 0;
    for (int d = 0; d < shape.rank(); ++d) {
      if (!is_summed(d)) at = at * shape[d] + index[d];
    }
    y[static_cast<std::size_t>(at)] += value;
    for (int d = shape.rank() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
  return y;
}

class SumTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(SumTest, MatchesReferenceForEverySetOfDims) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Values x = random_values(shape.numel(), 1);
  const Tensor input = make_tensor(*context, shape, x, dtype, layout);
  const double growth = std::sqrt(static_cast<double>(1 + shape.numel()));
  for (int set = 0; set < 1 << shape.rank(); ++set) {
    std::vector<int> dims;
    Shape kept;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      if ((set >> d & 1) != 0) dims.push_back(d);
    }
    for (int d = 0; d < shape.rank(); ++d) {
      if ((set >> d & 1) == 0) kept.push_back(shape[d]);
    }
    const Tensor y = ops::sum(input, dims);
    EXPECT_EQ(y.shape(), kept);
    expect_close(values_of(y), reference_sum(x, shape, dims),
                 growth * tolerance(dtype, 1e-14, 2e-7));
  }
  Values squares = x;
  for (double& v : squares) v *= v;
  EXPECT_NEAR(ops::sum(input).item(), dot(x, Values(x.size(), 1.0)),
              growth * tolerance(dtype, 1e-14, 2e-7));
  for (const std::int64_t block : {1, 7, 1000}) {
    const Tensor sums = ops::square_sums(input, block);
    EXPECT_EQ(sums.dtype(), DType::kF64);
    Values expected(static_cast<std::size_t>((shape.numel() + block - 1) / block));
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected[i / static_cast<std::size_t>(block)] += squares[i];
    }
    expect_close(values_of(sums), expected, 1e-13);  // in f64 for f32 as well
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SumTest, ::testing::ValuesIn(op_cases()), case_name);

TEST(SumIdentityTest, OfOnesCountsThem) {
  const auto context = make_context(2);
  constexpr std::int64_t kCount = (1 << 24) + 3;  // beyond what f32 can count one by one
  const Tensor x = Tensor::empty(*context, {kCount}, DType::kF32);
  std::fill_n(x.data<float>(), kCount, 1.0F);
  EXPECT_EQ(ops::sum(x).item(), static_cast<double>(static_cast<float>(kCount)));
  EXPECT_EQ(ops::sum(x.reshape({kCount, 1}).broadcast_to({kCount, 1}), std::vector<int>{0}).item(),
            static_cast<double>(static_cast<float>(kCount)));
}

TEST(SumIdentityTest, BlocksOfSquaresDoNotDependOnWhatFollows) {
  const auto context = make_context();
  const Tensor x = make_tensor(*context, {5000}, random_values(5000, 2), DType::kF32);
  const auto whole = ops::square_sums(x, 1024).to_vector<double>();
  const auto part = ops::square_sums(x.narrow(0, 1024, 2048), 1024).to_vector<double>();
  EXPECT_EQ(part[0], whole[1]);
  EXPECT_EQ(part[1], whole[2]);
}

TEST(SumToTest, IsTheTransposeOfBroadcasting) {
  const auto context = make_context();
  const Shape large{3, 4, 5};
  const Values g = random_values(60, 3);
  for (const Shape& small : {Shape{}, Shape{5}, Shape{1}, Shape{4, 1}, Shape{3, 1, 1},
                             Shape{3, 4, 5}, Shape{1, 4, 1}, Shape{3, 1, 5}}) {
    const Values x = random_values(small.numel(), 4);
    const Tensor down = ops::sum_to(make_tensor(*context, large, g), small);
    EXPECT_EQ(down.shape(), small);
    const Values up = values_of(make_tensor(*context, small, x).broadcast_to(large));
    EXPECT_NEAR(dot(up, g), dot(x, values_of(down)), 1e-12) << small.to_string();
  }
}

TEST(SumWorkspaceTest, IsGivenBack) {
  const auto context = make_context();
  const Tensor x = make_tensor(*context, {9000}, random_values(9000, 5));
  ops::sum(x);
  EXPECT_EQ(context->memory().current(MemoryCategory::kWorkspace), 0U);
  EXPECT_GE(context->memory().peak(MemoryCategory::kWorkspace), 3 * sizeof(double));
}

TEST(SumThreadsTest, BitsDoNotDependOnThem) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    for (const std::vector<int>& dims :
         {std::vector<int>{}, {0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}}) {
      expect_same_bits_for_any_thread_count([&](Context& context) {
        const Tensor x = make_tensor(context, {7, 501, 67}, random_values(7 * 501 * 67, 6), dtype);
        return dims.empty() ? ops::sum(x) : ops::sum(x, dims);
      });
    }
    expect_same_bits_for_any_thread_count([&](Context& context) {
      const Tensor x = make_tensor(context, {100003}, random_values(100003, 7), dtype);
      return ops::square_sums(x, 777);
    });
  }
}

TEST(SumErrorTest, NamesWhatDoesNotFit) {
  const auto context = make_context();
  const Tensor x = Tensor::zeros(*context, {2, 3}, DType::kF32);
  for (const std::vector<int>& dims : {std::vector<int>{2}, {-1}, {0, 0}}) {
    expect_error([&] { ops::sum(x, dims); }, ErrorCode::kShape, {"sum", "[2, 3]"});
  }
  expect_error([&] { ops::sum_to(x, {2}); }, ErrorCode::kShape, {"[2, 3]", "[2]"});
  expect_error([&] { ops::sum_to(x, {4, 2, 3}); }, ErrorCode::kShape, {"[2, 3]", "[4, 2, 3]"});
  expect_error([&] { ops::square_sums(x, 0); }, ErrorCode::kInvalidArgument, {"square_sums", "0"});
  expect_error([&] { ops::sum(Tensor::zeros(*context, {2}, DType::kI32)); }, ErrorCode::kDType,
               {"sum", "i32"});
}

}  // namespace
}  // namespace tessera

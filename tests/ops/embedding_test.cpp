// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/embedding.hpp"

#include <gtest/gtest.h>

#include "op_cases.hpp"

namespace tessera {
namespace {

using namespace testing;

constexpr std::int64_t kRows = 11;

std::vector<std::int32_t> some_indices(std::int64_t count) {
  std::vector<std::int32_t> indices;
  for (std::int64_t i = 0; i < count; ++i) {
    indices.push_back(static_cast<std::int32_t>(i * i % (kRows - 1)));  // row 10 never
  }
  return indices;
}

/// The case's shape is dy's: the indices' and a width.
class EmbeddingTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(EmbeddingTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Shape lead = shape.slice(0, shape.rank() - 1);
  const std::int64_t width = shape.back(0);
  const auto indices = some_indices(lead.numel());
  const Values table = random_values(kRows * width, 1);
  const Values dy = random_values(shape.numel(), 2);
  Values y;
  Values dtable = table;
  for (std::size_t n = 0; n < indices.size(); ++n) {
    for (std::int64_t c = 0; c < width; ++c) {
      const auto at = static_cast<std::size_t>(indices[n] * width + c);
      y.push_back(table[at]);
      dtable[at] += dy[n * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)];
    }
  }
  const Tensor tokens = Tensor::from(*context, lead, indices);
  const Tensor rows = make_tensor(*context, {kRows, width}, table, dtype, layout);
  const Tensor out = ops::embedding(rows, tokens);
  EXPECT_EQ(out.shape(), shape);
  EXPECT_EQ(values_of(out), y);
  const Tensor sums = make_tensor(*context, {kRows, width}, table, dtype);
  ops::embedding_backward(sums, make_tensor(*context, shape, dy, dtype, layout), tokens);
  expect_close(values_of(sums), dtable, tolerance(dtype, 1e-13, 5e-6));
}

INSTANTIATE_TEST_SUITE_P(Cases, EmbeddingTest, ::testing::ValuesIn(op_cases(1)), case_name);

TEST(EmbeddingGradientTest, IsTheTransposeOfTheLookup) {
  const auto context = make_context();
  const Tensor tokens = Tensor::from<std::int32_t>(*context, {2, 3}, {4, 0, 4, 1, 4, 0});
  const Values table = random_values(5 * 7, 3);
  const Values dy = random_values(6 * 7, 4);
  const Tensor dtable = Tensor::zeros(*context, {5, 7}, DType::kF64);
  ops::embedding_backward(dtable, make_tensor(*context, {2, 3, 7}, dy), tokens);
  const Values y = values_of(ops::embedding(make_tensor(*context, {5, 7}, table), tokens));
  EXPECT_NEAR(dot(y, dy), dot(table, values_of(dtable)), 1e-12);
}

TEST(EmbeddingGradientTest, SumsTheTokensOfARowInTheirOrder) {
  const auto context = make_context(3);
  const Tensor tokens = Tensor::from<std::int32_t>(*context, {4}, {1, 1, 1, 1});
  // In order, the 1 is lost beside 1e8 and the rest cancels; in other orders it is not.
  const Tensor dy = make_tensor(*context, {4, 1}, {1e8, 1.0, -1e8, 0.5}, DType::kF32);
  const Tensor dtable = Tensor::zeros(*context, {2, 1}, DType::kF32);
  ops::embedding_backward(dtable, dy, tokens);
  EXPECT_EQ(values_of(dtable), (Values{0.0, 0.5}));
}

TEST(EmbeddingTableTest, MayHoldAnyDtypeOnTheWayForward) {
  const auto context = make_context();
  const Tensor table = Tensor::from<std::int64_t>(*context, {2, 2}, {1, 2, 3, 4});
  const Tensor tokens = Tensor::from<std::int32_t>(*context, {3}, {1, 0, 1});
  EXPECT_EQ(ops::embedding(table, tokens).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{3, 4, 1, 2, 3, 4}));
}

TEST(EmbeddingTableTest, IndicesMayBeStrided) {
  const auto context = make_context();
  const Tensor table = make_tensor(*context, {4, 1}, {0.0, 1.0, 2.0, 3.0});
  const Tensor tokens = Tensor::from<std::int32_t>(*context, {2, 2}, {0, 1, 2, 3});
  EXPECT_EQ(values_of(ops::embedding(table, tokens.transpose(0, 1))), (Values{0.0, 2.0, 1.0, 3.0}));
}

TEST(EmbeddingThreadsTest, BitsDoNotDependOnThem) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    expect_same_bits_for_any_thread_count([dtype](Context& context) {
      const Tensor dtable = Tensor::zeros(context, {kRows, 331}, dtype);
      const Tensor dy = make_tensor(context, {501, 331}, random_values(501 * 331, 5), dtype);
      ops::embedding_backward(dtable, dy, Tensor::from(context, {501}, some_indices(501)));
      return ops::embedding(dtable, Tensor::from(context, {501}, some_indices(501)));
    });
  }
}

TEST(EmbeddingErrorTest, NamesTheIndexOutsideTheTable) {
  const auto context = make_context();
  const Tensor table = Tensor::zeros(*context, {5, 2}, DType::kF32);
  for (const std::int32_t bad : {5, -1, 123456}) {
    const Tensor tokens = Tensor::from<std::int32_t>(*context, {3}, {0, 4, bad});
    const std::vector<std::string> words = {"embedding", std::to_string(bad), "position 2",
                                            "5 rows"};
    expect_error([&] { ops::embedding(table, tokens); }, ErrorCode::kInvalidArgument, words);
    expect_error(
        [&] {
          ops::embedding_backward(table, Tensor::zeros(*context, {3, 2}, DType::kF32), tokens);
        },
        ErrorCode::kInvalidArgument, words);
  }
}

TEST(EmbeddingErrorTest, NamesShapesAndDtypes) {
  const auto context = make_context();
  const Tensor table = Tensor::zeros(*context, {5, 2}, DType::kF32);
  const Tensor tokens = Tensor::zeros(*context, {3}, DType::kI32);
  expect_error([&] { ops::embedding(Tensor::zeros(*context, {5}, DType::kF32), tokens); },
               ErrorCode::kShape, {"embedding", "[V, C]", "[5]"});
  expect_error([&] { ops::embedding(table, Tensor::zeros(*context, {3}, DType::kI64)); },
               ErrorCode::kDType, {"embedding", "i32", "i64"});
  expect_error(
      [&] {
        ops::embedding_backward(table, Tensor::zeros(*context, {2, 3}, DType::kF32), tokens);
      },
      ErrorCode::kShape, {"embedding_backward", "[3, 2]", "[2, 3]"});
  expect_error(
      [&] {
        ops::embedding_backward(table, Tensor::zeros(*context, {3, 2}, DType::kF64), tokens);
      },
      ErrorCode::kDType, {"embedding_backward", "f32", "f64"});
}

}  // namespace
}  // namespace tessera

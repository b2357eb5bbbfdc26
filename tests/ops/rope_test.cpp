// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/rope.hpp"

#include <gtest/gtest.h>

#include "op_cases.hpp"

namespace tessera {
namespace {

using namespace testing;

constexpr std::int64_t kPositions = 50;

struct Table {
  Tensor cos, sin;
};

double frequency(std::int64_t i) { return std::pow(10.0, -static_cast<double>(i) / 3.0); }

Table make_table(Context& context, std::int64_t half, DType dtype) {
  const DType computed = dtype == DType::kF64 ? dtype : DType::kF32;
  Values cos, sin;
  for (std::int64_t p = 0; p < kPositions; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      cos.push_back(std::cos(static_cast<double>(p) * frequency(i)));
      sin.push_back(std::sin(static_cast<double>(p) * frequency(i)));
    }
  }
  return {make_tensor(context, {kPositions, half}, cos, computed),
          make_tensor(context, {kPositions, half}, sin, computed)};
}

std::vector<std::int32_t> some_positions(std::int64_t count) {
  std::vector<std::int32_t> positions;
  for (std::int64_t i = 0; i < count; ++i) {
    positions.push_back(static_cast<std::int32_t>((i * 17 + 3) % kPositions));
  }
  return positions;
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  for (const Shape& shape : {Shape{1, 1, 1, 2}, Shape{2, 3, 4, 10}, Shape{3, 7, 2, 64},
                             Shape{2, 0, 2, 4}, Shape{1, 5, 3, 34}}) {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      for (const Layout layout : {Layout::kDense, Layout::kReversed, Layout::kGapped}) {
        all.push_back({shape, dtype, layout});
      }
    }
  }
  return all;
}

class RopeTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(RopeTest, TurnsEachPairByItsAngle) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const std::int64_t half = shape[3] / 2;
  const Values x = random_values(shape.numel(), 1, 1.0, dtype);
  const auto at = some_positions(shape[0] * shape[1]);
  Values y(x.size());
  for (std::int64_t row = 0; row * 2 * half < shape.numel(); ++row) {
    const auto position = static_cast<double>(at[static_cast<std::size_t>(row / shape[2])]);
    for (std::int64_t i = 0; i < half; ++i) {
      const auto first = static_cast<std::size_t>(row * 2 * half + i);
      const auto second = first + static_cast<std::size_t>(half);
      const double angle = position * frequency(i);
      y[first] = x[first] * std::cos(angle) - x[second] * std::sin(angle);
      y[second] = x[second] * std::cos(angle) + x[first] * std::sin(angle);
    }
  }
  const Table table = make_table(*context, half, dtype);
  const Tensor positions = Tensor::from(*context, shape.slice(0, 2), at);
  const Tensor turned =
      ops::rope(make_tensor(*context, shape, x, dtype, layout), positions, table.cos, table.sin);
  expect_close(values_of(turned), y, tolerance(dtype));
  const Tensor back = ops::rope(turned, positions, table.cos, table.sin, ops::Rotation::kBackward);
  expect_close(values_of(back), x, 3.0 * tolerance(dtype));
}

INSTANTIATE_TEST_SUITE_P(Cases, RopeTest, ::testing::ValuesIn(cases()), case_name);

/// Scores depend on the distance only: <rope(q, m), rope(k, n)> = <rope(q, m - n), k>.
TEST(RopeIdentityTest, ScoresDependOnDistance) {
  const auto context = make_context();
  const Table table = make_table(*context, 8, DType::kF64);
  const Tensor q = make_tensor(*context, {1, 1, 1, 16}, random_values(16, 1));
  const Tensor k = make_tensor(*context, {1, 1, 1, 16}, random_values(16, 2));
  const auto turned = [&](const Tensor& x, std::int32_t position) {
    const Tensor at = Tensor::from(*context, {1, 1}, std::vector<std::int32_t>{position});
    return values_of(ops::rope(x, at, table.cos, table.sin));
  };
  EXPECT_NEAR(dot(turned(q, 31), turned(k, 12)), dot(turned(q, 19), values_of(k)), 1e-12);
  EXPECT_EQ(turned(q, 0), values_of(q));
}

TEST(RopeThreadsTest, BitsDoNotDependOnThem) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    expect_same_bits_for_any_thread_count([&](Context& context) {
      const Table table = make_table(context, 16, dtype);
      const Tensor x =
          make_tensor(context, {3, 101, 5, 32}, random_values(3 * 101 * 160, 3), dtype);
      return ops::rope(x, Tensor::from(context, {3, 101}, some_positions(303)), table.cos,
                       table.sin);
    });
  }
}

TEST(RopeErrorTest, NamesShapesDtypesAndPositions) {
  const auto context = make_context();
  const Table table = make_table(*context, 2, DType::kF32);
  const Tensor x = Tensor::zeros(*context, {1, 2, 3, 4}, DType::kF32);
  const auto at = [&](std::int32_t a, std::int32_t b) {
    return Tensor::from(*context, {1, 2}, std::vector<std::int32_t>{a, b});
  };
  EXPECT_NO_THROW(ops::rope(x, at(0, 49), table.cos, table.sin));
  expect_error([&] { ops::rope(x, at(0, 50), table.cos, table.sin); }, ErrorCode::kInvalidArgument,
               {"rope", "position 50", "50 positions"});
  expect_error([&] { ops::rope(x, at(-1, 0), table.cos, table.sin); }, ErrorCode::kInvalidArgument,
               {"rope", "-1"});
  expect_error([&] { ops::rope(x.narrow(3, 0, 3), at(0, 1), table.cos, table.sin); },
               ErrorCode::kShape, {"rope", "[1, 2, 3, 3]"});
  expect_error(
      [&] { ops::rope(x, Tensor::zeros(*context, {2}, DType::kI32), table.cos, table.sin); },
      ErrorCode::kShape, {"positions", "[1, 2]"});
  const Table wide = make_table(*context, 3, DType::kF32);
  expect_error([&] { ops::rope(x, at(0, 1), wide.cos, wide.sin); }, ErrorCode::kShape,
               {"cos", "[50, 2]", "[50, 3]"});
  const Table exact = make_table(*context, 2, DType::kF64);
  expect_error([&] { ops::rope(x, at(0, 1), exact.cos, exact.sin); }, ErrorCode::kDType,
               {"cos", "f32", "f64"});
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/dropout.hpp"

#include <gtest/gtest.h>

#include "op_cases.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera {
namespace {

using namespace testing;
using ops::GlobalWindow;

constexpr RandomKey kKey{0x1234567890ABCDEFULL};

/// The definition, element by element.
Values reference_dropout(const Values& x, const Shape& shape, double p,
                         const GlobalWindow& window) {
  const Shape strides = contiguous_strides(window.global_shape);
  Shape index = Shape::filled(shape.rank(), 0);
  Values y;
  for (const double value : x) {
    std::int64_t g = 0;
    for (int d = 0; d < shape.rank(); ++d) g += (index[d] + window.offset[d]) * strides[d];
    const bool is_kept =
        static_cast<double>(random_bits(kKey, static_cast<std::uint64_t>(g))) >= p * 4294967296.0;
    y.push_back(is_kept ? value / (1.0 - p) : 0.0);
    for (int d = shape.rank() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
  return y;
}

class DropoutTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(DropoutTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Values x = random_values(shape.numel(), 1);
  const Tensor input = make_tensor(*context, shape, x, dtype, layout);
  Shape larger = shape;
  Shape offset = shape;
  for (int d = 0; d < shape.rank(); ++d) {
    offset[d] = 3 + d;
    larger[d] = shape[d] + 7 + d;
  }
  for (const double p : {0.0, 0.1, 0.5, 0.999}) {
    for (const GlobalWindow& window :
         {GlobalWindow{shape, Shape::filled(shape.rank(), 0)}, GlobalWindow{larger, offset}}) {
      expect_close(values_of(ops::dropout(input, p, kKey, window)),
                   reference_dropout(x, shape, p, window), tolerance(dtype, 1e-13, 2e-7));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DropoutTest, ::testing::ValuesIn(op_cases()), case_name);

TEST(DropoutWindowTest, MaskDoesNotDependOnTheCut) {
  const auto context = make_context();
  const Shape shape{6, 10, 33};
  const Tensor x = make_tensor(*context, shape, random_values(shape.numel(), 2), DType::kF32);
  const Values whole = values_of(ops::dropout(x, 0.3, kKey, {shape, {0, 0, 0}}));
  const Tensor expected = make_tensor(*context, shape, whole, DType::kF32);
  for (int dim = 0; dim < 3; ++dim) {
    for (std::int64_t cut = 1; cut < shape[dim]; ++cut) {
      for (const auto& [first, size] : {std::pair{std::int64_t{0}, cut}, {cut, shape[dim] - cut}}) {
        Shape offset{0, 0, 0};
        offset[dim] = first;
        const Tensor part = ops::dropout(x.narrow(dim, first, size), 0.3, kKey, {shape, offset});
        ASSERT_EQ(values_of(part), values_of(expected.narrow(dim, first, size)))
            << "dim " << dim << " from " << first;
      }
    }
  }
}

TEST(DropoutWindowTest, TakesIndicesBeyond32Bits) {
  const auto context = make_context();
  const GlobalWindow window{{1 << 20, 1 << 18}, {(1 << 20) - 2, 5}};
  const Values x = random_values(2 * 99, 3);
  expect_close(values_of(ops::dropout(make_tensor(*context, {2, 99}, x), 0.4, kKey, window)),
               reference_dropout(x, {2, 99}, 0.4, window), 1e-14);
}

TEST(DropoutStatisticsTest, KeepsTheRightShareAndTheMean) {
  const auto context = make_context();
  constexpr std::int64_t kCount = 400000;
  for (const double p : {0.1, 0.5, 0.9}) {
    const Tensor x = make_tensor(*context, {kCount}, Values(kCount, 1.0), DType::kF32);
    double kept = 0.0;
    double sum = 0.0;
    for (const double y : values_of(ops::dropout(x, p, kKey.child(1), {{kCount}, {0}}))) {
      kept += y != 0.0 ? 1.0 : 0.0;
      sum += y;
    }
    const double error = 5.0 * std::sqrt(p * (1.0 - p) / kCount);
    EXPECT_NEAR(kept / kCount, 1.0 - p, error);
    EXPECT_NEAR(sum / kCount, 1.0, error / (1.0 - p) + 1e-6);
  }
}

TEST(DropoutStatisticsTest, KeysGiveIndependentMasks) {
  const auto context = make_context();
  constexpr std::int64_t kCount = 100000;
  const Tensor x = make_tensor(*context, {kCount}, Values(kCount, 1.0));
  const Values a = values_of(ops::dropout(x, 0.5, kKey.child(1), {{kCount}, {0}}));
  const Values b = values_of(ops::dropout(x, 0.5, kKey.child(2), {{kCount}, {0}}));
  EXPECT_NEAR(dot(a, b) / kCount, 1.0, 0.05);  // 4 P(both kept)
}

TEST(DropoutGradientTest, IsTheSameFunctionOfDy) {
  const auto context = make_context();
  const Values x = random_values(41, 4);
  const Values dy = random_values(41, 5);
  const GlobalWindow window{{41}, {0}};
  const auto drop = [&](const Values& v) {
    return values_of(ops::dropout(make_tensor(*context, {41}, v), 0.3, kKey, window));
  };
  expect_close(drop(dy), numeric_gradient([&](const Values& v) { return dot(drop(v), dy); }, x),
               1e-9);
}

TEST(DropoutExtremesTest, ZeroProbabilityKeepsEveryBitOfACopy) {
  const auto context = make_context();
  const Tensor x = make_tensor(*context, {4}, {0.1, -0.0, INFINITY, 1e-300});
  const Tensor y = ops::dropout(x, 0.0, kKey, {{4}, {0}});
  EXPECT_EQ(bytes_of(y), bytes_of(x));
  EXPECT_FALSE(y.shares_storage(x));
}

TEST(DropoutExtremesTest, ProbabilityNextToOneDropsAll) {
  const auto context = make_context();
  const Tensor x = make_tensor(*context, {1000}, Values(1000, 1.0));
  for (const double y : values_of(ops::dropout(x, 1.0 - 1e-12, kKey, {{1000}, {0}}))) {
    EXPECT_EQ(y, 0.0);
  }
}

TEST(DropoutThreadsTest, BitsDoNotDependOnThem) {
  for (const Shape& shape : {Shape{40009}, Shape{1237, 31}}) {
    for (const DType dtype : {DType::kF64, DType::kF32}) {
      expect_same_bits_for_any_thread_count([&](Context& context) {
        const Tensor x = make_tensor(context, shape, random_values(shape.numel(), 6), dtype);
        Shape global = shape;
        global[shape.rank() - 1] += 2;
        return ops::dropout(x, 0.1, kKey, {global, Shape::filled(shape.rank(), 1)});
      });
    }
  }
}

TEST(DropoutErrorTest, NamesTheProbabilityAndTheWindow) {
  const auto context = make_context();
  const Tensor x = Tensor::zeros(*context, {2, 3}, DType::kF32);
  for (const double p : {-0.1, 1.0, 2.0, std::nan("")}) {
    expect_error(
        [&] {
          ops::dropout(x, p, kKey, {{2, 3}, {0, 0}});
        },
        ErrorCode::kInvalidArgument, {"dropout", "[0, 1)"});
  }
  expect_error(
      [&] {
        ops::dropout(x, 0.5, kKey, {{3}, {0}});
      },
      ErrorCode::kShape, {"dropout", "[2, 3]"});
  expect_error(
      [&] {
        ops::dropout(x, 0.5, kKey, {{2, 4}, {0, 2}});
      },
      ErrorCode::kShape, {"dropout", "[2, 3]", "[0, 2]", "[2, 4]", "dim 1"});
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/layer_norm.hpp"

#include <gtest/gtest.h>

#include "op_cases.hpp"
#include "reference_basic.hpp"

namespace tessera {
namespace {

using namespace testing;

constexpr double kEps = 1e-5;

std::vector<OpCase> cases_with_a_width() {
  std::vector<OpCase> cases = computed_cases(1);
  std::erase_if(cases, [](const OpCase& c) { return c.shape.back(0) == 0; });
  cases.push_back({{133, 1100}, DType::kF32, Layout::kDense});  // more than a panel and a block
  cases.push_back({{133, 1100}, DType::kF64, Layout::kDense});
  return cases;
}

class LayerNormTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(LayerNormTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const std::int64_t width = shape.back(0);
  const Values x = random_values(shape.numel(), 1, 2.0, dtype);
  const Values w = random_values(width, 2, 1.0, dtype);
  const Values b = random_values(width, 3, 1.0, dtype);
  const Values dy = random_values(shape.numel(), 4, 1.0, dtype);
  const DType statistics = dtype == DType::kF64 ? dtype : DType::kF32;
  const auto expected = reference::layer_norm(x, w, b, kEps);
  const auto gradient = reference::layer_norm_gradient(dy, x, w, expected);
  const Tensor input = make_tensor(*context, shape, x, dtype, layout);
  const Tensor weight = make_tensor(*context, {width}, w, dtype);
  const Tensor upstream = make_tensor(*context, shape, dy, dtype, layout);

  const auto r = ops::layer_norm(input, weight, make_tensor(*context, {width}, b, dtype), kEps);
  expect_close(values_of(r.y), expected.y, tolerance(dtype, 1e-13, 2e-6));
  expect_close(values_of(r.mean), expected.mean, tolerance(statistics));
  expect_close(values_of(r.rstd), expected.rstd, tolerance(statistics, 1e-13, 2e-6));
  EXPECT_EQ(r.mean.shape(), shape.slice(0, shape.rank() - 1));

  // A row of one element has rstd = 1 / sqrt(eps), which multiplies every rounding.
  const double amplified = width == 1 ? 300.0 : 1.0;
  const Tensor dx = ops::layer_norm_backward(upstream, input, weight, r.mean, r.rstd);
  expect_close(values_of(dx), gradient.dx, amplified * tolerance(dtype, 1e-13, 4e-6));
  const Tensor dw = make_tensor(*context, {width}, w, dtype);
  const Tensor db = make_tensor(*context, {width}, b, dtype);
  ops::layer_norm_weight_backward(dw, db, upstream, input, r.mean, r.rstd);
  Values expected_dw = w;
  Values expected_db = b;
  for (std::size_t i = 0; i < w.size(); ++i) expected_dw[i] += gradient.dw[i];
  for (std::size_t i = 0; i < b.size(); ++i) expected_db[i] += gradient.db[i];
  // The sum of n random terms grows like the root of n, and its rounding errors with it.
  const double growth = std::sqrt(static_cast<double>(1 + r.mean.numel()));
  expect_close(values_of(dw), expected_dw, growth * tolerance(dtype, 1e-13, 1e-6));
  expect_close(values_of(db), expected_db, growth * tolerance(dtype, 1e-13, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Cases, LayerNormTest, ::testing::ValuesIn(cases_with_a_width()),
                         case_name);

struct Norm {
  Values x = random_values(3 * 7, 5);
  Values w = random_values(7, 6);
  Values b = random_values(7, 7);
  Values dy = random_values(3 * 7, 8);
  std::shared_ptr<Context> context = make_context();

  ops::LayerNormResult forward(double eps = kEps) const {
    return ops::layer_norm(make_tensor(*context, {3, 7}, x), make_tensor(*context, {7}, w),
                           make_tensor(*context, {7}, b), eps);
  }
  double loss() const { return dot(values_of(forward().y), dy); }
};

TEST(LayerNormGradientTest, MatchesFiniteDifferences) {
  Norm norm;
  const auto r = norm.forward();
  const Tensor x = make_tensor(*norm.context, {3, 7}, norm.x);
  const Tensor dy = make_tensor(*norm.context, {3, 7}, norm.dy);
  const Tensor dx =
      ops::layer_norm_backward(dy, x, make_tensor(*norm.context, {7}, norm.w), r.mean, r.rstd);
  const Tensor dw = Tensor::zeros(*norm.context, {7}, DType::kF64);
  const Tensor db = Tensor::zeros(*norm.context, {7}, DType::kF64);
  ops::layer_norm_weight_backward(dw, db, dy, x, r.mean, r.rstd);
  const auto numeric = [&norm](Values Norm::*part) {
    const Values at = norm.*part;
    Norm moved = norm;
    return numeric_gradient(
        [&](const Values& v) {
          moved.*part = v;
          return moved.loss();
        },
        at);
  };
  expect_close(values_of(dx), numeric(&Norm::x), 1e-8);
  expect_close(values_of(dw), numeric(&Norm::w), 1e-8);
  expect_close(values_of(db), numeric(&Norm::b), 1e-8);
}

TEST(LayerNormIdentityTest, IsInvariantToShiftAndScaleOfARow) {
  Norm norm;
  const Values y = values_of(norm.forward(0.0).y);
  for (std::size_t i = 0; i < norm.x.size(); ++i) {
    norm.x[i] = norm.x[i] * (1.0 + static_cast<double>(i / 7)) + 10.0;
  }
  expect_close(values_of(norm.forward(0.0).y), y, 1e-12);
}

TEST(LayerNormIdentityTest, RowsHaveMeanZeroAndVarianceOne) {
  Norm norm;
  norm.w.assign(7, 1.0);
  norm.b.assign(7, 0.0);
  const Values y = values_of(norm.forward(0.0).y);
  for (std::size_t row = 0; row < 3; ++row) {
    const Values part(y.begin() + static_cast<std::ptrdiff_t>(row * 7),
                      y.begin() + static_cast<std::ptrdiff_t>(row * 7 + 7));
    EXPECT_NEAR(dot(part, Values(7, 1.0)), 0.0, 1e-13);
    EXPECT_NEAR(dot(part, part), 7.0, 1e-12);
  }
}

TEST(LayerNormIdentityTest, EpsIsAddedToTheVariance) {
  Norm norm;
  norm.x.assign(21, 3.0);
  EXPECT_DOUBLE_EQ(norm.forward(0.25).rstd.to_vector<double>()[1], 2.0);
  expect_close(
      values_of(norm.forward(0.25).y),
      [&] {
        Values rows;
        for (int row = 0; row < 3; ++row) rows.insert(rows.end(), norm.b.begin(), norm.b.end());
        return rows;
      }(),
      0.0);
}

TEST(LayerNormAccuracyTest, KeepsTheVarianceOfRowsFarFromZero) {
  const auto context = make_context();
  Values x;
  for (int i = 0; i < 1000; ++i) x.push_back(4096.0 + (i % 2 == 0 ? 0.5 : -0.5));
  const Tensor one = make_tensor(*context, {1000}, Values(1000, 1.0), DType::kF32);
  const auto r = ops::layer_norm(make_tensor(*context, {1, 1000}, x, DType::kF32), one, one, 0.0);
  EXPECT_NEAR(r.rstd.item(), 2.0, 1e-5);
}

TEST(LayerNormThreadsTest, BitsDoNotDependOnThem) {
  for (const Shape& shape : {Shape{1501, 37}, Shape{333, 1100}}) {
    for (const DType dtype : {DType::kF64, DType::kF32}) {
      for (int part = 0; part < 4; ++part) {
        expect_same_bits_for_any_thread_count([&](Context& context) {
          const std::int64_t width = shape.back(0);
          const Tensor x = make_tensor(context, shape, random_values(shape.numel(), 9), dtype);
          const Tensor w = make_tensor(context, {width}, random_values(width, 10), dtype);
          const auto r = ops::layer_norm(x, w, w, kEps);
          if (part == 0) return r.y;
          if (part == 1) return ops::layer_norm_backward(r.y, x, w, r.mean, r.rstd);
          const Tensor dw = Tensor::zeros(context, {width}, dtype);
          const Tensor db = Tensor::zeros(context, {width}, dtype);
          ops::layer_norm_weight_backward(dw, db, r.y, x, r.mean, r.rstd);
          return part == 2 ? dw : db;
        });
      }
    }
  }
}

TEST(LayerNormErrorTest, RejectsEmptyLastDim) {
  const auto context = make_context();
  const Tensor x = Tensor::zeros(*context, {2, 0}, DType::kF32);
  const Tensor w = Tensor::zeros(*context, {0}, DType::kF32);
  expect_error([&] { ops::layer_norm(x, w, w, kEps); }, ErrorCode::kShape,
               {"layer_norm", "[2, 0]"});
}

TEST(LayerNormErrorTest, NamesShapesAndDtypes) {
  const auto context = make_context();
  const Tensor x = Tensor::zeros(*context, {2, 3}, DType::kF32);
  const Tensor w = Tensor::zeros(*context, {3}, DType::kF32);
  const Tensor wide = Tensor::zeros(*context, {4}, DType::kF32);
  const Tensor f64 = Tensor::zeros(*context, {3}, DType::kF64);
  const Tensor rows = Tensor::zeros(*context, {2}, DType::kF32);
  expect_error([&] { ops::layer_norm(x, wide, w, kEps); }, ErrorCode::kShape,
               {"layer_norm", "[3]", "[4]"});
  expect_error([&] { ops::layer_norm(x, f64, w, kEps); }, ErrorCode::kDType, {"layer_norm", "f64"});
  expect_error([&] { ops::layer_norm_backward(x, x, w, wide, rows); }, ErrorCode::kShape,
               {"layer_norm_backward", "mean", "[2]", "[4]"});
  expect_error([&] { ops::layer_norm_weight_backward(f64, w, x, x, rows, rows); },
               ErrorCode::kDType, {"layer_norm_weight_backward", "dweight", "f32", "f64"});
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/gated_activation.hpp"

#include <gtest/gtest.h>

#include "op_cases.hpp"
#include "reference_basic.hpp"

namespace tessera {
namespace {

using namespace testing;
using ops::Activation;

constexpr Activation kKinds[] = {Activation::kGelu, Activation::kGeluErf, Activation::kSilu,
                                 Activation::kRelu};

/// The cases' shapes [..., F] with the packing dim put in.
Shape packed(const Shape& shape) {
  Shape out = shape.slice(0, shape.rank() - 1);
  out.push_back(2);
  out.push_back(shape.back(0));
  return out;
}

/// Index in the packed array of part 0 (gate) or 1 (up) of element i.
std::size_t at(std::size_t i, std::size_t width, std::size_t part) {
  return (i / width * 2 + part) * width + i % width;
}

class GatedActivationTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(GatedActivationTest, MatchesReference) {
  const auto context = make_context(2);
  const auto& [shape, dtype, layout] = GetParam();
  const Values x = random_values(2 * shape.numel(), 1, 2.0, dtype);
  const Values dy = random_values(shape.numel(), 2, 1.0, dtype);
  const auto width = static_cast<std::size_t>(shape.back(0));
  const Tensor input = make_tensor(*context, packed(shape), x, dtype, layout);
  const Tensor gradient = make_tensor(*context, shape, dy, dtype, layout);
  for (const Activation kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    Values y;
    Values dx(x.size());
    for (std::size_t i = 0; i < dy.size(); ++i) {
      const double gate = x[at(i, width, 0)];
      const double up = x[at(i, width, 1)];
      y.push_back(reference::activation(gate, kind) * up);
      dx[at(i, width, 0)] = dy[i] * up * reference::activation_slope(gate, kind);
      dx[at(i, width, 1)] = dy[i] * reference::activation(gate, kind);
    }
    const Tensor out = ops::gated_activation(input, kind);
    EXPECT_EQ(out.shape(), shape);
    expect_close(values_of(out), y, tolerance(dtype));
    expect_close(values_of(ops::gated_activation_backward(input, gradient, kind)), dx,
                 tolerance(dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GatedActivationTest, ::testing::ValuesIn(computed_cases(1)),
                         case_name);

TEST(GatedActivationThreadsTest, BitsDoNotDependOnThem) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (int part = 0; part < 2; ++part) {
      expect_same_bits_for_any_thread_count([&](Context& context) {
        const Tensor x = make_tensor(context, {29, 2, 1031}, random_values(29 * 2062, 6), dtype);
        const Tensor y = ops::gated_activation(x, Activation::kSilu);
        return part == 0 ? y : ops::gated_activation_backward(x, y, Activation::kSilu);
      });
    }
  }
}

TEST(GatedActivationErrorTest, NamesShapesAndDtypes) {
  const auto context = make_context();
  const Tensor x = Tensor::zeros(*context, {4, 2, 3}, DType::kF32);
  expect_error(
      [&] {
        ops::gated_activation(Tensor::zeros(*context, {4, 3, 3}, DType::kF32), Activation::kSilu);
      },
      ErrorCode::kShape, {"gated_activation", "[..., 2, F]", "[4, 3, 3]"});
  expect_error(
      [&] { ops::gated_activation(Tensor::zeros(*context, {2}, DType::kF32), Activation::kSilu); },
      ErrorCode::kShape, {"gated_activation", "[2]"});
  expect_error(
      [&] {
        ops::gated_activation_backward(x, Tensor::zeros(*context, {4, 2, 3}, DType::kF32),
                                       Activation::kSilu);
      },
      ErrorCode::kShape, {"dy", "[4, 3]", "[4, 2, 3]"});
  expect_error(
      [&] {
        ops::gated_activation_backward(x, Tensor::zeros(*context, {4, 3}, DType::kF64),
                                       Activation::kSilu);
      },
      ErrorCode::kDType, {"dy", "f32", "f64"});
  expect_error(
      [&] {
        ops::gated_activation(Tensor::zeros(*context, {2, 2}, DType::kI32), Activation::kSilu);
      },
      ErrorCode::kDType, {"gated_activation", "i32"});
}

}  // namespace
}  // namespace tessera

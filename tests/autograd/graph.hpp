// SPDX-License-Identifier: Apache-2.0
// What the autograd tests share: filled tensors, a loss that weighs every element differently, and
// finite differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/activation.hpp"
#include "tessera/autograd/backward.hpp"
#include "tessera/autograd/linear.hpp"
#include "tessera/autograd/reshape.hpp"
#include "tessera/autograd/variable.hpp"
#include "tessera/core/context.hpp"
#include "tessera/core/random.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::autograd::testing {

using Values = std::vector<double>;

/// Reproducible values in (-1, 1).
inline Values noise(std::int64_t count, std::uint64_t seed) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(2.0 * random_uniform(RandomKey{seed + 1}, static_cast<std::uint64_t>(i)) -
                     1.0);
  }
  return values;
}

inline Tensor noise_tensor(Context& context, const Shape& shape, std::uint64_t seed,
                           DType dtype = DType::kF64) {
  return ops::cast(Tensor::from(context, shape, noise(shape.numel(), seed)), dtype);
}

inline Variable leaf(Context& context, const Shape& shape, std::uint64_t seed,
                     DType dtype = DType::kF64) {
  return Variable(noise_tensor(context, shape, seed, dtype), {}, TakesGradient::kYes);
}

inline Variable parameter(Context& context, const Shape& shape, std::uint64_t seed,
                          const std::string& name, DType dtype = DType::kF64) {
  const CategoryScope scope(context, MemoryCategory::kParameter);
  return Variable::parameter(noise_tensor(context, shape, seed, dtype), {}, name, dtype);
}

/// Shape []: every element times its own fixed weight, summed. Needs linear and reshape only.
inline Variable weighed(const Variable& y, std::uint64_t seed = 77) {
  const Variable weights(noise_tensor(y.context(), {1, y.shape().numel()}, seed, y.dtype()));
  return reshape(linear(reshape(y, {1, y.shape().numel()}), weights), {});
}

inline Values values_of(const Tensor& tensor) {
  return ops::cast(tensor, DType::kF64).to_vector<double>();
}

/// Bit for bit.
inline ::testing::AssertionResult is_same(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return ::testing::AssertionFailure() << "undefined";
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    return ::testing::AssertionFailure() << a.shape().to_string() << " " << b.shape().to_string();
  }
  const Values x = values_of(a);
  const Values y = values_of(b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::memcmp(&x[i], &y[i], sizeof(double)) != 0) {
      return ::testing::AssertionFailure() << "element " << i << ": " << x[i] << " and " << y[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline Variable gelu(const Variable& x) { return activation(x, ops::Activation::kGelu); }

using Function = std::function<Variable(const std::vector<Variable>&)>;

/// Compares backward with central differences for every element of the operands that take
/// gradients. `f` must be a function of its operands' values; its result may have any shape.
inline void expect_gradients(const Function& f, const std::vector<Variable>& operands,
                             double tolerance = 2e-7) {
  const auto loss = [&f, &operands] {
    const NoGradScope no_grad(operands[0].context());
    return weighed(f(operands)).value().item();
  };
  for (const Variable& operand : operands) Variable(operand).zero_grad();
  backward(weighed(f(operands)));
  constexpr double kStep = 1e-5;
  for (std::size_t which = 0; which < operands.size(); ++which) {
    if (!operands[which].takes_gradient()) continue;
    const Tensor& value = operands[which].value();
    ASSERT_TRUE(operands[which].grad().defined()) << "operand " << which;
    EXPECT_EQ(operands[which].grad().shape(), value.shape());
    const Values gradient = values_of(operands[which].grad());
    auto* const data = value.data<double>();
    for (std::int64_t i = 0; i < value.numel(); ++i) {
      const double kept = data[i];
      data[i] = kept + kStep;
      const double above = loss();
      data[i] = kept - kStep;
      const double below = loss();
      data[i] = kept;
      const double expected = (above - below) / (2.0 * kStep);
      EXPECT_NEAR(gradient[static_cast<std::size_t>(i)], expected,
                  tolerance * (1.0 + std::abs(expected)))
          << "operand " << which << " element " << i;
    }
  }
}

}  // namespace tessera::autograd::testing

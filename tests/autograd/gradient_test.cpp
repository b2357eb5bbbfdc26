// SPDX-License-Identifier: Apache-2.0
// Gradients of every differentiable function against finite differences in f64.
#include <gtest/gtest.h>

#include "graph.hpp"
#include "tessera/autograd/add.hpp"
#include "tessera/autograd/attention.hpp"
#include "tessera/autograd/cast.hpp"
#include "tessera/autograd/concat.hpp"
#include "tessera/autograd/cross_entropy.hpp"
#include "tessera/autograd/dropout.hpp"
#include "tessera/autograd/embedding.hpp"
#include "tessera/autograd/gated_activation.hpp"
#include "tessera/autograd/layer_norm.hpp"
#include "tessera/autograd/mul.hpp"
#include "tessera/autograd/narrow.hpp"
#include "tessera/autograd/on_gradient.hpp"
#include "tessera/autograd/permute.hpp"
#include "tessera/autograd/rms_norm.hpp"
#include "tessera/autograd/rope.hpp"
#include "tessera/autograd/scale.hpp"
#include "tessera/autograd/softmax.hpp"
#include "tessera/autograd/sum.hpp"
#include "tessera/autograd/unbind.hpp"

namespace tessera::autograd {
namespace {

using testing::expect_gradients;
using testing::gelu;
using testing::leaf;

using Operands = std::vector<Variable>;

class GradientTest : public ::testing::Test {
 protected:
  Variable make(const Shape& shape) { return leaf(*context_, shape, seed_++); }
  Variable indices(const Shape& shape, const std::vector<std::int32_t>& values) {
    return Variable(Tensor::from(*context_, shape, values));
  }

  std::shared_ptr<Context> context_ = Context::create();
  std::uint64_t seed_ = 1;
};

TEST_F(GradientTest, Linear) {
  const auto f = [](const Operands& v) { return linear(v[0], v[1]); };
  expect_gradients(f, {make({5, 3}), make({7, 3})});
  expect_gradients(f, {make({2, 3, 5}), make({1, 5})});
  expect_gradients(f, {make({1, 1}), make({1, 1})});
  expect_gradients(f, {make({3}), make({2, 3})});
  expect_gradients(f, {make({3, 4}), make({4})});
  const auto two = [](const Operands& v) { return linear(v[0], v[1], 2); };
  expect_gradients(two, {make({3, 2, 5}), make({4, 2, 5})});
  expect_gradients(f, {make({2, 3}), make({2, 5, 1, 3})});
}

TEST_F(GradientTest, LinearWithBias) {
  const auto f = [](const Operands& v) { return linear(v[0], v[1], v[2]); };
  expect_gradients(f, {make({5, 3}), make({7, 3}), make({7})});
  expect_gradients(f, {make({2, 3, 4}), make({3, 2, 4}), make({3, 2})});
  expect_gradients(f, {make({1, 1}), make({1, 1}), make({1})});
  const auto two = [](const Operands& v) { return linear(v[0], v[1], v[2], 2); };
  expect_gradients(two, {make({3, 2, 5}), make({4, 1, 2, 5}), make({4, 1})});
}

TEST_F(GradientTest, Add) {
  const auto f = [](const Operands& v) { return add(v[0], v[1]); };
  expect_gradients(f, {make({3, 5}), make({3, 5})});
  expect_gradients(f, {make({3, 5}), make({5})});
  expect_gradients(f, {make({1, 5}), make({2, 3, 5})});
  expect_gradients(f, {make({3, 1}), make({1, 4})});
  expect_gradients(f, {make({}), make({2, 2})});
  expect_gradients(f, {make({1}), make({1})});
}

TEST_F(GradientTest, AddOfOneVariableTwice) {
  expect_gradients([](const Operands& v) { return add(v[0], v[0]); }, {make({3, 2})});
}

TEST_F(GradientTest, Scale) {
  expect_gradients([](const Operands& v) { return scale(v[0], -2.5); }, {make({3, 5})});
  expect_gradients([](const Operands& v) { return scale(v[0], 0.0); }, {make({1})});
}

TEST_F(GradientTest, Gelu) {
  expect_gradients([](const Operands& v) { return gelu(scale(v[0], 4.0)); }, {make({3, 7})});
  expect_gradients([](const Operands& v) { return gelu(v[0]); }, {make({1})});
}

TEST_F(GradientTest, Dropout) {
  const auto f = [](const Operands& v) { return dropout(v[0], 0.4, RandomKey{3}); };
  expect_gradients(f, {make({5, 7})});
  expect_gradients(f, {make({1, 1})});
  expect_gradients([](const Operands& v) { return dropout(v[0], 0.0, RandomKey{3}); }, {make({3})});
}

TEST_F(GradientTest, LayerNorm) {
  const auto f = [](const Operands& v) { return layer_norm(v[0], v[1], v[2]); };
  expect_gradients(f, {make({3, 5}), make({5}), make({5})});
  expect_gradients(f, {make({2, 3, 7}), make({7}), make({7})});
  expect_gradients(f, {make({4}), make({4}), make({4})});
  expect_gradients(f, {make({2, 1}), make({1}), make({1})});
}

TEST_F(GradientTest, RmsNorm) {
  const auto f = [](const Operands& v) { return rms_norm(v[0], v[1]); };
  expect_gradients(f, {make({3, 5}), make({5})});
  expect_gradients(f, {make({2, 3, 7}), make({7})});
  expect_gradients(f, {make({2, 1}), make({1})}, 2e-6);
}

TEST_F(GradientTest, AddRmsNorm) {
  const auto both = [](const Operands& v) {
    const NormedSum r = add_rms_norm(v[0], v[1], v[2]);
    return add(r.normed, scale(r.sum, 0.5));
  };
  expect_gradients(both, {make({3, 5}), make({3, 5}), make({5})});
  const auto normed = [](const Operands& v) { return add_rms_norm(v[0], v[1], v[2]).normed; };
  expect_gradients(normed, {make({2, 3, 4}), make({2, 3, 4}), make({4})});
  const auto sum = [](const Operands& v) { return add_rms_norm(v[0], v[1], v[2]).sum; };
  expect_gradients(sum, {make({3, 5}), make({3, 5}), make({5})});
  const auto twice = [](const Operands& v) { return add_rms_norm(v[0], v[0], v[1]).normed; };
  expect_gradients(twice, {make({3, 5}), make({5})});
}

TEST_F(GradientTest, Softmax) {
  const auto f = [](const Operands& v) { return softmax(scale(v[0], 3.0)); };
  expect_gradients(f, {make({3, 7})});
  expect_gradients(f, {make({2, 3, 1})});
}

TEST_F(GradientTest, Mul) {
  const auto f = [](const Operands& v) { return mul(v[0], v[1]); };
  expect_gradients(f, {make({3, 5}), make({3, 5})});
  expect_gradients(f, {make({3, 5}), make({5})});
  expect_gradients(f, {make({3, 1}), make({1, 4})});
  expect_gradients(f, {make({}), make({2, 2})});
  expect_gradients([](const Operands& v) { return mul(v[0], v[0]); }, {make({3, 2})});
}

TEST_F(GradientTest, Activations) {
  for (const auto kind : {ops::Activation::kGelu, ops::Activation::kGeluErf, ops::Activation::kSilu,
                          ops::Activation::kRelu}) {
    expect_gradients([&](const Operands& v) { return activation(scale(v[0], 4.0), kind); },
                     {make({3, 7})});
    expect_gradients([&](const Operands& v) { return gated_activation(v[0], kind); },
                     {make({3, 2, 5})});
  }
}

TEST_F(GradientTest, Rope) {
  const RopeTable table = make_rope_table(*context_, {1.0, 0.1, 0.01}, 9, DType::kF64);
  expect_gradients([&](const Operands& v) { return rope(v[0], table); }, {make({2, 5, 3, 6})});
  const Variable at = indices({2, 3}, {8, 0, 4, 4, 7, 1});
  expect_gradients([&](const Operands& v) { return rope(v[0], table, at); }, {make({2, 3, 1, 6})});
}

TEST_F(GradientTest, Concat) {
  for (int dim = 0; dim < 3; ++dim) {
    const auto f = [dim](const Operands& v) { return concat(v, dim); };
    Shape other{2, 3, 2};
    other[dim] = 4;
    expect_gradients(f, {make({2, 3, 2}), make(other), make({2, 3, 2})});
  }
  expect_gradients([](const Operands& v) { return concat(v, 0); }, {make({3})});
  const auto twice = [](const Operands& v) {
    const Variable parts[] = {v[0], v[0]};
    return concat(parts, 0);
  };
  expect_gradients(twice, {make({2, 2})});
  const Variable parts[] = {make({2, 2}), make({3, 3})};
  EXPECT_THROW(concat(parts, 0), Error);
  EXPECT_THROW(concat(std::span<const Variable>(parts, 1), 2), Error);
  EXPECT_THROW(concat(std::span<const Variable>(), 0), Error);
  const Variable mixed[] = {make({2}), cast(make({2}), DType::kF32)};
  EXPECT_THROW(concat(mixed, 0), Error);
}

TEST_F(GradientTest, Unbind) {
  for (int dim = 0; dim < 3; ++dim) {
    const auto f = [dim](const Operands& v) {
      const std::vector<Variable> parts = unbind(v[0], dim);
      return mul(parts.front(), parts.back());
    };
    expect_gradients(f, {make({2, 3, 2})});
  }
  const auto one = [](const Operands& v) { return unbind(v[0], 1)[1]; };  // the others get zeros
  expect_gradients(one, {make({2, 3})});
  const Variable x = make({2, 3});
  EXPECT_TRUE(unbind(x, 1)[0].value().shares_storage(x.value()));
}

TEST_F(GradientTest, Mean) {
  expect_gradients([](const Operands& v) { return mean(v[0]); }, {make({3, 5})});
  const std::vector<int> outer_dims = {0, 2};
  expect_gradients([&](const Operands& v) { return mean(v[0], outer_dims); }, {make({2, 5, 3})});
  EXPECT_DOUBLE_EQ(mean(Variable(Tensor::from(*context_, {2, 2}, std::vector<double>{1, 2, 4, 9})))
                       .value()
                       .item(),
                   4.0);
  EXPECT_THROW(mean(make({0, 3})), Error);
}

TEST_F(GradientTest, LayerNormWithOneTensorAsWeightAndBias) {
  expect_gradients([](const Operands& v) { return layer_norm(v[0], v[1], v[1]); },
                   {make({3, 5}), make({5})});
}

TEST_F(GradientTest, Attention) {
  for (const auto mask : {ops::AttentionMask::kNone, ops::AttentionMask::kCausal}) {
    const auto f = [mask](const Operands& v) { return attention(v[0], v[1], v[2], mask); };
    expect_gradients(f, {make({2, 3, 2, 5}), make({2, 3, 2, 5}), make({2, 3, 2, 5})});
    expect_gradients(f, {make({1, 5, 4, 3}), make({1, 5, 2, 3}), make({1, 5, 2, 3})});
    expect_gradients(f, {make({1, 1, 1, 1}), make({1, 1, 1, 1}), make({1, 1, 1, 1})});
  }
  expect_gradients(
      [](const Operands& v) { return attention(v[0], v[1], v[2], ops::AttentionMask::kNone, 0.3); },
      {make({2, 3, 1, 4}), make({2, 5, 1, 4}), make({2, 5, 1, 4})});
}

TEST_F(GradientTest, AttentionOfPackedProjection) {
  const auto f = [](const Operands& v) { return attention(v[0]); };
  expect_gradients(f, {make({2, 5, 3, 2, 3})});
  expect_gradients(f, {make({1, 1, 3, 1, 1})});
}

TEST_F(GradientTest, AttentionOfOneTensorThrice) {
  expect_gradients([](const Operands& v) { return attention(v[0], v[0], v[0]); },
                   {make({1, 4, 2, 3})});
}

TEST_F(GradientTest, Embedding) {
  const auto f = [](const Operands& v) { return embedding(v[0], v[1]); };
  expect_gradients(f, {make({5, 3}), indices({2, 3}, {4, 0, 4, 1, 4, 2})});
  expect_gradients(f, {make({1, 1}), indices({1}, {0})});
}

TEST_F(GradientTest, CrossEntropy) {
  const auto f = [](const Operands& v) { return cross_entropy(v[0], v[1]); };
  expect_gradients(f, {make({2, 3, 7}), indices({2, 3}, {6, 0, -1, 3, 3, -1})});
  expect_gradients(f, {make({1, 1}), indices({1}, {0})});
  expect_gradients(f, {make({3, 4}), indices({3}, {-1, -1, -1})});
}

TEST_F(GradientTest, LinearCrossEntropy) {
  const ops::CrossEntropyOptions options{.label_smoothing = 0.1, .soft_cap = 3.0};
  const auto f = [&](const Operands& v) {
    return scale(linear_cross_entropy(v[0], v[1], v[2], options), 0.5);
  };
  const Variable labels = indices({2, 3}, {6, 0, -1, 3, 3, -1});
  expect_gradients(f, {make({2, 3, 4}), make({7, 4}), labels});
  expect_gradients(f, {make({1, 1}), make({1, 1}), indices({1}, {0})});
  EXPECT_THROW(linear_cross_entropy(make({2, 4}), make({7, 5}), indices({2}, {0, 1})), Error);
  EXPECT_THROW(linear_cross_entropy(make({2, 4}), make({7, 4}), indices({3}, {0, 1, 1})), Error);
  const Variable w = make({7, 4});
  backward(linear_cross_entropy(make({0, 4}), w, indices({0}, {})));
  EXPECT_EQ(w.grad().to_vector<double>(), std::vector<double>(28, 0.0));
}

/// Several chunks of logits give the loss and gradients of all logits at once; a second run over a
/// kept graph gives the same again.
TEST_F(GradientTest, LinearCrossEntropyEqualsItsParts) {
  constexpr std::int64_t kWords = 70001;  // 239 tokens a chunk
  constexpr std::int64_t kTokens = 500;
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    targets.push_back(i % 9 == 4 ? -1 : static_cast<std::int32_t>(i * 7919 % kWords));
  }
  const Variable labels = indices({kTokens}, targets);
  Variable x = make({kTokens, 3});
  Variable w = make({kWords, 3});
  const auto gradients_of = [&](const Variable& loss) {
    x.zero_grad();
    w.zero_grad();
    backward(scale(loss, 0.01), {}, KeepGraph::kYes);
    return std::pair(x.grad().to_vector<double>(), w.grad().to_vector<double>());
  };
  const Variable parts = cross_entropy(linear(x, w), labels);
  const Variable fused = linear_cross_entropy(x, w, labels);
  EXPECT_NEAR(fused.value().item(), parts.value().item(), 1e-9);
  const auto [dx, dw] = gradients_of(parts);
  for (int run = 0; run < 2; ++run) {
    const auto [fused_dx, fused_dw] = gradients_of(fused);
    for (std::size_t i = 0; i < dx.size(); ++i) ASSERT_NEAR(fused_dx[i], dx[i], 1e-13);
    for (std::size_t i = 0; i < dw.size(); ++i) ASSERT_NEAR(fused_dw[i], dw[i], 1e-13);
  }
}

TEST_F(GradientTest, LinearCrossEntropyHoldsFewLogits) {
  const auto& memory = context_->memory();
  const Variable labels = indices({4096}, std::vector<std::int32_t>(4096, 1));
  const Variable x = make({4096, 2});
  const Variable w = make({32768, 2});
  const std::size_t before = memory.peak_total();
  {
    const NoGradScope no_grad(*context_);
    linear_cross_entropy(x, w, labels);
  }
  backward(linear_cross_entropy(x, w, labels));
  // All logits would be 1 GiB of f64; a chunk has 2^24 elements.
  EXPECT_LT(memory.peak_total() - before, std::size_t{(1 << 27) + (1 << 23)});
}

TEST_F(GradientTest, CastKeepsTheGradientInTheOperandsDType) {
  const Variable x = make({3, 5});
  const Variable y = cast(x, DType::kF32);
  backward(y, ops::cast(testing::noise_tensor(*context_, {3, 5}, 9), DType::kF32));
  EXPECT_EQ(x.grad().dtype(), DType::kF64);
  EXPECT_EQ(
      x.grad().to_vector<double>(),
      testing::values_of(ops::cast(testing::noise_tensor(*context_, {3, 5}, 9), DType::kF32)));
}

TEST_F(GradientTest, Reshape) {
  expect_gradients([](const Operands& v) { return reshape(v[0], {5, -1}); }, {make({2, 5, 3})});
  expect_gradients(
      [](const Operands& v) {
        return reshape(permute(v[0], {1, 0}), {15});
      },
      {make({3, 5})});
  expect_gradients([](const Operands& v) { return reshape(v[0], {}); }, {make({1})});
}

TEST_F(GradientTest, Permute) {
  expect_gradients([](const Operands& v) { return permute(v[0], {2, 0, 1}); }, {make({2, 5, 3})});
  expect_gradients([](const Operands& v) { return gelu(permute(v[0], {1, 0})); }, {make({3, 1})});
}

TEST_F(GradientTest, Narrow) {
  expect_gradients([](const Operands& v) { return narrow(v[0], 1, 2, 3); }, {make({2, 5, 3})});
  expect_gradients([](const Operands& v) { return narrow(v[0], 0, 1, 1); }, {make({3})});
  expect_gradients(
      [](const Operands& v) { return add(narrow(v[0], 1, 0, 2), narrow(v[0], 1, 1, 2)); },
      {make({2, 3})});
}

TEST_F(GradientTest, Sum) {
  expect_gradients([](const Operands& v) { return sum(v[0]); }, {make({3, 5})});
  const std::vector<int> outer_dims = {0, 2};
  expect_gradients([&](const Operands& v) { return sum(v[0], outer_dims); }, {make({2, 5, 3})});
  const std::vector<int> middle = {1};
  expect_gradients([&](const Operands& v) { return sum(v[0], middle); }, {make({2, 5, 3})});
  expect_gradients([&](const Operands& v) { return sum(v[0], std::span<const int>{}); },
                   {make({2, 3})});
  expect_gradients([](const Operands& v) { return sum(v[0]); }, {make({})});
}

TEST_F(GradientTest, OnGradientSeesTheGradientOnce) {
  std::vector<double> seen;
  const Variable x = make({2, 3});
  const Variable y = on_gradient(scale(x, 2.0), [&seen](const Tensor& dy) {
    const auto values = dy.to_vector<double>();
    seen.insert(seen.end(), values.begin(), values.end());
  });
  backward(sum(scale(y, 3.0)));
  EXPECT_EQ(seen, std::vector<double>(6, 3.0));
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(6, 6.0));
}

TEST_F(GradientTest, ViewsShareTheOperandsStorage) {
  const Variable x = make({4, 6});
  for (const Variable& view :
       {permute(x, {1, 0}), narrow(x, 1, 2, 3), reshape(x, {2, 12}), reshape(x, {-1})}) {
    EXPECT_TRUE(view.value().shares_storage(x.value()));
  }
  EXPECT_FALSE(reshape(permute(x, {1, 0}), {24}).value().shares_storage(x.value()));
}

TEST_F(GradientTest, WeightsAccumulateInTheirBuffersWithoutCopies) {
  const Variable x = make({4, 6});
  Variable w = testing::parameter(*context_, {5, 6}, 50, "w");
  Variable b = testing::parameter(*context_, {5}, 51, "b");
  const Tensor buffer = Tensor::zeros(*context_, {5, 6}, DType::kF64);
  w.set_grad_buffer(buffer);
  backward(sum(linear(x, w, b)));
  EXPECT_TRUE(w.grad().shares_storage(buffer));
  const auto once = buffer.to_vector<double>();
  backward(sum(linear(x, w, b)));
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(buffer.to_vector<double>()[i], 2.0 * once[i]);
  }
}

TEST_F(GradientTest, EmptyBatchesGiveZeroWeightGradients) {
  const Variable x = make({0, 3});
  const Variable w = make({2, 3});
  const Variable b = make({2});
  const Variable norm = make({2});
  backward(sum(gelu(layer_norm(linear(x, w, b), norm, b))));
  EXPECT_EQ(w.grad().to_vector<double>(), std::vector<double>(6, 0.0));
  EXPECT_EQ(b.grad().to_vector<double>(), std::vector<double>(2, 0.0));
  EXPECT_EQ(norm.grad().to_vector<double>(), std::vector<double>(2, 0.0));
}

TEST_F(GradientTest, LinearRejectsShapesThatDoNotAgree) {
  try {
    linear(make({3, 4}), make({5, 3}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShape);
    EXPECT_NE(error.message().find("[3, 4]"), std::string::npos);
  }
  EXPECT_THROW(linear(make({3, 4}), make({5, 4}), make({4})), Error);
  EXPECT_THROW(linear(make({4}), make({5, 4}), 2), Error);
}

}  // namespace
}  // namespace tessera::autograd

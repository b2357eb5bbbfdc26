// SPDX-License-Identifier: Apache-2.0
// Logits and gradients of GPT-2 and Llama, and rotary frequencies, against Hugging Face
// transformers: tests/golden/decoder_transformers.py.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "../golden/decoder_transformers.inc"
#include "tessera/autograd/backward.hpp"
#include "tessera/core/context.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera {
namespace {

constexpr std::int64_t kVocabulary = 13;
constexpr std::int64_t kLength = 6;
constexpr std::int64_t kRows = 2;

std::vector<double> formula(std::int64_t count, std::size_t number) {
  std::vector<double> values;
  for (std::int64_t i = 1; i <= count; ++i) {
    values.push_back(
        0.3 * std::sin(12.9898 * static_cast<double>(i) + 78.233 * static_cast<double>(number)));
  }
  return values;
}

nn::DecoderConfig sized(nn::DecoderConfig config) {
  config.layers = 2;
  config.width = 16;
  config.heads = 4;
  config.vocabulary = kVocabulary;
  config.sequence = kLength;
  return config;
}

autograd::Variable indices(Context& context, int row_step, int column_step, int start) {
  std::vector<std::int32_t> values;
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kLength; ++c) {
      values.push_back((r * row_step + c * column_step + start) % static_cast<int>(kVocabulary));
    }
  }
  return autograd::Variable(Tensor::from(context, {kRows, kLength}, values));
}

void expect_equal(const nn::DecoderConfig& config, DType dtype, double tolerance,
                  std::span<const double> logits, double loss, std::span<const double> gradients) {
  const auto context = Context::create();
  nn::Decoder model(nn::BuildContext{context.get(), nullptr, dtype, ""}, config);
  const auto parameters = model.parameters();
  ASSERT_EQ(parameters.size(), gradients.size());
  for (std::size_t n = 0; n < parameters.size(); ++n) {
    const Tensor& value = parameters[n]->variable.value();
    std::vector<double> values = formula(value.numel(), n);
    const bool is_norm = parameters[n]->name.find("ln_") != std::string::npos &&
                         parameters[n]->name.ends_with("weight");
    for (double& v : values) v += is_norm ? 1.0 : 0.0;
    ops::copy_into(value, Tensor::from(*context, value.shape(), values));
  }
  const autograd::Variable tokens = indices(*context, 5, 3, 1);
  const std::vector<double> found =
      ops::cast(model.forward(tokens).value(), DType::kF64).to_vector<double>();
  ASSERT_EQ(found.size(), logits.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], logits[i], tolerance) << "logit " << i;
  }
  const nn::LossTerm terms[] = {model.loss(tokens, indices(*context, 7, 2, 4), 1.0)};
  EXPECT_NEAR(nn::local_loss(terms), loss, tolerance * loss);
  autograd::backward(nn::loss_roots(terms));
  for (std::size_t n = 0; n < parameters.size(); ++n) {
    const Tensor& gradient = parameters[n]->variable.grad();
    const std::vector<double> values = ops::cast(gradient, DType::kF64).to_vector<double>();
    const std::vector<double> direction = formula(gradient.numel(), n + 100);
    double sum = 0.0;
    double size = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += values[i] * direction[i];
      size += std::abs(values[i] * direction[i]);
    }
    EXPECT_NEAR(sum, gradients[n], tolerance * (1.0 + size)) << parameters[n]->name;
  }
}

TEST(DecoderGoldenTest, Gpt2IsThatOfTransformers) {
  const nn::DecoderConfig config = sized({});
  expect_equal(config, DType::kF64, 1e-12, kGpt2Logits, kGpt2Loss[0], kGpt2Gradients);
  expect_equal(config, DType::kF32, 1e-5, kGpt2Logits, kGpt2Loss[0], kGpt2Gradients);
}

TEST(DecoderGoldenTest, LlamaIsThatOfTransformers) {
  nn::DecoderConfig config = sized(nn::DecoderConfig::llama());
  config.kv_heads = 2;
  config.hidden = 24;
  expect_equal(config, DType::kF64, 1e-12, kLlamaLogits, kLlamaLoss[0], kLlamaGradients);
  expect_equal(config, DType::kF32, 1e-5, kLlamaLogits, kLlamaLoss[0], kLlamaGradients);
}

/// transformers computes frequencies in f32.
void expect_frequencies(nn::RopeScaling scaling, std::span<const double> expected) {
  nn::RopeConfig config;
  config.scaling = scaling;
  config.factor = 4.0;
  config.original_length = 32;
  config.length = 128;
  const nn::RopeFrequencies found = nn::rope_frequencies(config, 16);
  ASSERT_EQ(found.radians_per_position.size() + 1, expected.size());
  for (std::size_t i = 0; i + 1 < expected.size(); ++i) {
    EXPECT_NEAR(found.radians_per_position[i] / expected[i], 1.0, 1e-6) << i;
  }
  EXPECT_NEAR(found.attention_factor, expected.back(), 1e-12);
}

TEST(RopeGoldenTest, ScalingsAreThoseOfTransformers) {
  expect_frequencies(nn::RopeScaling::kLinear, kRopeLinear);
  expect_frequencies(nn::RopeScaling::kDynamic, kRopeDynamic);
  expect_frequencies(nn::RopeScaling::kYarn, kRopeYarn);
  expect_frequencies(nn::RopeScaling::kLlama3, kRopeLlama3);
}

TEST(RopeTest, RejectsWhatCannotBe) {
  const auto rejected = [](nn::RopeConfig config, std::int64_t head_size) {
    try {
      nn::rope_frequencies(config, head_size);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kConfig;
    }
    return false;
  };
  nn::RopeConfig config;
  EXPECT_FALSE(rejected(config, 4));
  EXPECT_TRUE(rejected(config, 5));
  config.scaling = nn::RopeScaling::kYarn;
  EXPECT_TRUE(rejected(config, 4));  // no original length
  config.original_length = 8;
  config.factor = 0.0;
  EXPECT_TRUE(rejected(config, 4));
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// Fifty steps of a small GPT against PyTorch from the same weights: tests/golden/gpt_torch.py.
#include <gtest/gtest.h>

#include <cmath>

#include "../golden/gpt_torch.inc"
#include "tessera/autograd/backward.hpp"
#include "tessera/core/context.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/optim/clip.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera {
namespace {

constexpr int kSteps = 50;
constexpr std::int64_t kVocabulary = 61;
constexpr std::int64_t kLength = 24;
constexpr std::int64_t kRows = 4;

std::int32_t token(std::int64_t step, std::int64_t row, std::int64_t column) {
  const std::int64_t n = step * kRows + row;
  return static_cast<std::int32_t>((n * 7 + column * 2) % kVocabulary);
}

/// The formula of the recorded run, instead of our own initialisation.
void set_weights(const std::vector<spmd::ParameterPtr>& parameters, int layers) {
  const double residual = 0.02 / std::sqrt(2.0 * layers);
  for (std::size_t number = 0; number < parameters.size(); ++number) {
    const spmd::Parameter& parameter = *parameters[number];
    if (parameter.decay == spmd::WeightDecay::kNo) continue;  // norms and biases start as ours do
    const bool is_residual = parameter.name.find("projection") != std::string::npos ||
                             parameter.name.find("down") != std::string::npos;
    const double scale = (is_residual ? residual : 0.02) * std::sqrt(2.0);
    std::vector<double> values(static_cast<std::size_t>(parameter.variable.value().numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = scale * std::sin(12.9898 * static_cast<double>(i + 1) +
                                   78.233 * static_cast<double>(number));
    }
    const Tensor& value = parameter.variable.value();
    ops::copy_into(value, Tensor::from(value.context(), value.shape(), values));
  }
}

void expect_equal_to_torch(DType dtype, double tolerance) {
  const auto context = Context::create();
  nn::DecoderConfig config;
  config.layers = 2;
  config.width = 48;
  config.heads = 4;
  config.vocabulary = kVocabulary;
  config.sequence = kLength;
  nn::Decoder model(nn::BuildContext{context.get(), nullptr, dtype, ""}, config);
  const auto parameters = model.parameters();
  set_weights(parameters, config.layers);
  optim::AdamW optimizer(parameters, {0.9, 0.95, 1e-8, 0.1});
  const optim::WarmupCosine schedule{4e-3, 4e-4, 5, kSteps};
  for (int step = 0; step < kSteps; ++step) {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
    double weight = 0.0;
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t c = 0; c < kLength; ++c) {
        tokens.push_back(token(step, r, c));
        const bool is_ignored = c % 7 == 0;
        targets.push_back(is_ignored ? -1 : token(step, r, c + 1));
        weight += is_ignored ? 0.0 : 1.0;
      }
    }
    const Shape shape{kRows, kLength};
    const nn::LossTerm terms[] = {
        model.loss(autograd::Variable(Tensor::from(*context, shape, tokens)),
                   autograd::Variable(Tensor::from(*context, shape, targets)), weight)};
    EXPECT_NEAR(nn::local_loss(terms), kTorchLosses[step], tolerance) << "step " << step;
    autograd::backward(nn::loss_roots(terms));
    const double norm = optim::gradient_norm(parameters, nullptr);
    EXPECT_NEAR(norm, kTorchNorms[step], tolerance * std::max(1.0, kTorchNorms[step] * 10))
        << "step " << step;
    optimizer.step(schedule.at(step), optim::clip_coefficient(norm, 1.0));
    optimizer.zero_grad();
  }
}

TEST(GptGoldenTest, LossesEqualTorchInF64) { expect_equal_to_torch(DType::kF64, 1e-9); }

TEST(GptGoldenTest, LossesEqualTorchInF32) { expect_equal_to_torch(DType::kF32, 1e-4); }

TEST(GptGoldenTest, TheRecordedRunLearns) {
  EXPECT_LT(kTorchLosses[kSteps - 1], 0.8 * kTorchLosses[0]);
}

}  // namespace
}  // namespace tessera

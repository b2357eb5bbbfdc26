// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/decoder.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tessera/autograd/backward.hpp"
#include "tessera/core/context.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
namespace {

nn::DecoderConfig tiny() {
  nn::DecoderConfig config;
  config.layers = 2;
  config.width = 16;
  config.heads = 4;
  config.vocabulary = 13;
  config.sequence = 8;
  return config;
}

TEST(DecoderTest, ParameterCountsAreThoseOfThePaper) {
  // GPT-2 small, medium, large, XL: 124,439,808 and so on with the tied head.
  const auto count = [](int layers, std::int64_t width, int heads) {
    nn::DecoderConfig config;
    config.layers = layers;
    config.width = width;
    config.heads = heads;
    return config.parameter_count();
  };
  EXPECT_EQ(count(12, 768, 12), 124439808);
  EXPECT_EQ(count(24, 1024, 16), 354823168);
  EXPECT_EQ(count(36, 1280, 20), 774030080);
  EXPECT_EQ(count(48, 1600, 25), 1557611200);
}

nn::DecoderConfig tiny_llama() {
  nn::DecoderConfig config = nn::DecoderConfig::llama();
  config.layers = 2;
  config.width = 16;
  config.heads = 4;
  config.kv_heads = 2;
  config.hidden = 24;
  config.vocabulary = 13;
  config.sequence = 8;
  return config;
}

TEST(DecoderTest, LlamaParameterCountsAreThePublishedOnes) {
  // Llama 2 7B and 13B, Mistral 7B.
  nn::DecoderConfig config = nn::DecoderConfig::llama();
  config.layers = 32;
  config.width = 4096;
  config.heads = 32;
  config.hidden = 11008;
  config.vocabulary = 32000;
  EXPECT_EQ(config.parameter_count(), 6738415616);
  config.kv_heads = 8;
  config.hidden = 14336;
  EXPECT_EQ(config.parameter_count(), 7241732096);
  config.layers = 40;
  config.width = 5120;
  config.heads = 40;
  config.kv_heads = 0;
  config.hidden = 13824;
  EXPECT_EQ(config.parameter_count(), 13015864320);
}

TEST(DecoderTest, CountsItsParametersByTheFormula) {
  const auto context = Context::create();
  nn::DecoderConfig mixed = tiny();  // what neither GPT-2 nor Llama has together
  mixed.kv_heads = 1;
  mixed.head_size = 6;
  mixed.is_gated = true;
  mixed.is_tied = false;
  nn::DecoderConfig rotary = tiny();
  rotary.positions = nn::PositionKind::kRope;
  for (const nn::DecoderConfig& config : {tiny(), tiny_llama(), mixed, rotary}) {
    const nn::Decoder model(nn::BuildContext{context.get(), nullptr, DType::kF32, ""}, config);
    EXPECT_EQ(model.parameter_count(), config.parameter_count());
  }
}

/// Multiply-adds of the forward pass by counting what each product of the graph does; backward
/// does twice as many.
TEST(DecoderTest, FlopsAreThoseOfTheProducts) {
  nn::DecoderConfig gpt;
  EXPECT_DOUBLE_EQ(gpt.flops_per_token(),
                   6.0 * (124439808.0 - 1024 * 768) + 12.0 * 12 * 768 * 1024);
  for (const nn::DecoderConfig& config : {tiny(), tiny_llama()}) {
    const auto context = Context::create();
    nn::Decoder model(nn::BuildContext{context.get(), nullptr, DType::kF32, ""}, config);
    // All matrices but tables that are only looked up; biases and norms are counted with them.
    double multiplied = 0.0;
    for (const auto& parameter : model.parameters()) {
      const bool is_looked_up = parameter->name == "positions.weight" ||
                                (parameter->name == "tokens.weight" && !config.is_tied);
      if (!is_looked_up) multiplied += static_cast<double>(parameter->variable.value().numel());
    }
    const double attention = 2.0 * 2.0 * config.layers *
                             static_cast<double>(config.heads * config.size_of_head()) *
                             static_cast<double>(config.sequence);
    EXPECT_DOUBLE_EQ(config.flops_per_token(), 3.0 * (2.0 * multiplied + attention));
  }
}

TEST(DecoderTest, ParameterNamesAreUnique) {
  const auto context = Context::create();
  const nn::Decoder model(nn::BuildContext{context.get(), nullptr, DType::kF32, ""}, tiny());
  std::set<std::string> names;
  for (const auto& parameter : model.parameters()) names.insert(parameter->name);
  EXPECT_EQ(names.size(), model.parameters().size());
  EXPECT_TRUE(names.contains("blocks.1.attention.qkv.weight"));
}

TEST(DecoderTest, StartsWithTheStandardDeviationsOfThePaper) {
  const auto context = Context::create();
  nn::DecoderConfig config = tiny();
  config.width = 128;
  const nn::Decoder model(nn::BuildContext{context.get(), nullptr, DType::kF64, ""}, config);
  for (const auto& parameter : model.parameters()) {
    double square = 0.0;
    const std::vector<double> values = parameter->variable.value().to_vector<double>();
    for (const double v : values) square += v * v;
    const double std = std::sqrt(square / static_cast<double>(values.size()));
    if (parameter->name.ends_with("bias")) {
      EXPECT_EQ(std, 0.0) << parameter->name;
    } else if (parameter->name.find("ln_") != std::string::npos) {
      EXPECT_EQ(std, 1.0) << parameter->name;
    } else {
      const bool is_residual = parameter->name.find("projection") != std::string::npos ||
                               parameter->name.find("down") != std::string::npos;
      const double expected = is_residual ? 0.02 / std::sqrt(2.0 * config.layers) : 0.02;
      EXPECT_NEAR(std / expected, 1.0, 0.06) << parameter->name;
    }
  }
}

TEST(DecoderTest, TheFirstLossIsThatOfGuessing) {
  const auto context = Context::create();
  for (const nn::DecoderConfig& config : {tiny(), tiny_llama()}) {
    nn::Decoder model(nn::BuildContext{context.get(), nullptr, DType::kF64, ""}, config);
    const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6};
    const autograd::Variable x(Tensor::from(*context, {2, 3}, tokens));
    const std::vector<std::int32_t> next{7, 8, 9, 10, 11, 12};
    const autograd::Variable y(Tensor::from(*context, {2, 3}, next));
    const nn::LossTerm term = model.loss(x, y, 6.0);
    EXPECT_NEAR(nn::local_loss(std::span<const nn::LossTerm>(&term, 1)), std::log(13.0), 0.1);
  }
}

TEST(DecoderTest, AFutureTokenChangesNoEarlierLogit) {
  const auto context = Context::create();
  for (const nn::DecoderConfig& config : {tiny(), tiny_llama()}) {
    nn::Decoder model(nn::BuildContext{context.get(), nullptr, DType::kF64, ""}, config);
    const auto logits = [&](std::int32_t last) {
      const std::vector<std::int32_t> tokens{1, 2, 3, last};
      return model.forward(autograd::Variable(Tensor::from(*context, {1, 4}, tokens)))
          .value()
          .narrow(1, 0, 3)
          .to_vector<double>();
    };
    EXPECT_EQ(logits(4), logits(9));
  }
}

TEST(DecoderTest, TheTiedHeadAddsBothGradients) {
  const auto context = Context::create();
  nn::Decoder model(nn::BuildContext{context.get(), nullptr, DType::kF64, ""}, tiny());
  const std::vector<std::int32_t> tokens{1, 2};
  const autograd::Variable x(Tensor::from(*context, {1, 2}, tokens));
  const nn::LossTerm term = model.loss(x, x, 2.0);
  autograd::backward(nn::loss_roots(std::span<const nn::LossTerm>(&term, 1)));
  const auto& table = model.parameters()[0]->variable;
  ASSERT_EQ(table.name(), "tokens.weight");
  // Unused rows get the head's gradient only; used rows the embedding's too.
  const double epsilon = 1e-6;
  for (const std::int64_t index : {std::int64_t{1 * 16 + 3}, std::int64_t{7 * 16 + 5}}) {
    const auto loss_with = [&](double delta) {
      table.value().data<double>()[index] += delta;
      const nn::LossTerm again = model.loss(x, x, 2.0);
      table.value().data<double>()[index] -= delta;
      return nn::local_loss(std::span<const nn::LossTerm>(&again, 1));
    };
    const double numeric = (loss_with(epsilon) - loss_with(-epsilon)) / (2 * epsilon);
    EXPECT_NEAR(table.grad().data<double>()[index], numeric, 1e-8);
  }
}

TEST(DecoderTest, DropsAtEverySiteWithAMaskOfItsOwn) {
  const auto context = Context::create();
  nn::DecoderConfig config = tiny();
  config.dropout = 0.5;
  nn::Decoder model(nn::BuildContext{context.get(), nullptr, DType::kF64, ""}, config);
  std::set<std::vector<bool>> masks;
  int sites = 0;
  context->add_observer(
      [&](OpPhase, std::string_view op, const Tensor& value, const ShardingType&) {
        if (op != "dropout") return;
        ++sites;
        std::vector<bool> mask;
        for (const double v : value.to_vector<double>()) mask.push_back(v != 0.0);
        masks.insert(mask);
      });
  const std::vector<std::int32_t> tokens{1, 2, 3, 4};
  const autograd::Variable x(Tensor::from(*context, {1, 4}, tokens));
  model.forward(x);
  EXPECT_EQ(sites, 1 + 2 * config.layers);  // the embeddings, and both branches of a block
  EXPECT_EQ(masks.size(), static_cast<std::size_t>(sites));
  model.set_training(false);
  model.forward(x);
  EXPECT_EQ(sites, 1 + 2 * config.layers);
}

TEST(DecoderTest, RejectsSizesThatCannotBe) {
  const auto message = [](auto change) -> std::string {
    nn::DecoderConfig config = tiny();
    change(config);
    try {
      config.validate();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      return error.message();
    }
    return "";
  };
  EXPECT_NE(message([](auto& c) { c.heads = 3; }).find("model.heads = 3"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.kv_heads = 3; }).find("model.kv_heads = 3"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.hidden = -1; }).find("model.hidden"), std::string::npos);
  EXPECT_NE(message([](auto& c) {
              c.positions = nn::PositionKind::kRope;
              c.heads = 16;
            }).find("must be even"),
            std::string::npos);
  EXPECT_NE(message([](auto& c) { c.layers = 0; }).find("model.layers"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.width = -4; }).find("model.width"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.vocabulary = 0; }).find("model.vocabulary"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.dropout = 1.0; }).find("model.dropout"), std::string::npos);
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/decoder.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "tessera/autograd/add.hpp"
#include "tessera/autograd/cross_entropy.hpp"
#include "tessera/autograd/dropout.hpp"
#include "tessera/autograd/linear.hpp"
#include "tessera/core/error.hpp"

namespace tessera::nn {

using autograd::Variable;

namespace {

Variable maybe_dropout(const Module& module, const Variable& x, double p, std::string_view site) {
  if (p == 0.0 || !module.is_training()) return x;
  return autograd::dropout(x, p, module.build().site(site));
}

void require(bool ok, const std::string& message) {
  if (!ok) throw Error(ErrorCode::kConfig, message);
}

std::shared_ptr<Norm> make_norm(const BuildContext& build, const DecoderConfig& config) {
  if (config.norm == NormKind::kRmsNorm) {
    return std::make_shared<RmsNorm>(build, config.width, config.norm_eps);
  }
  return std::make_shared<LayerNorm>(build, config.width, config.norm_eps);
}

autograd::RopeTable make_rope(const BuildContext& build, const DecoderConfig& config) {
  if (config.positions != PositionKind::kRope) return {};
  RopeConfig rope = config.rope;
  if (rope.length == 0) rope.length = config.sequence;
  const RopeFrequencies f = rope_frequencies(rope, config.size_of_head());
  const DType dtype = build.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const CategoryScope scope(*build.context, MemoryCategory::kParameter);
  return autograd::make_rope_table(*build.context, f.radians_per_position, config.sequence, dtype,
                                   f.attention_factor);
}

/// Parameters of all projections of a block, without biases.
std::int64_t block_weights(const DecoderConfig& config) {
  const std::int64_t heads = config.heads * config.size_of_head();
  const std::int64_t keys = config.key_heads() * config.size_of_head();
  const std::int64_t attention = config.width * (heads + 2 * keys) + heads * config.width;
  const std::int64_t mlp = (config.is_gated ? 3 : 2) * config.width * config.hidden_size();
  return attention + mlp;
}

}  // namespace

DecoderConfig DecoderConfig::llama() {
  DecoderConfig config;
  config.norm = NormKind::kRmsNorm;
  config.activation = ops::Activation::kSilu;
  config.is_gated = true;
  config.positions = PositionKind::kRope;
  config.has_bias = false;
  config.is_tied = false;
  return config;
}

void DecoderConfig::validate() const {
  require(layers > 0, fmt::format("model.layers must be at least 1, not {}", layers));
  require(width > 0, fmt::format("model.width must be at least 1, not {}", width));
  require(heads > 0, fmt::format("model.heads must be at least 1, not {}", heads));
  require(
      head_size > 0 || width % heads == 0,
      fmt::format("model.heads = {} does not divide model.width = {}; every head needs the same "
                  "whole number of channels",
                  heads, width));
  require(kv_heads >= 0 && heads % key_heads() == 0,
          fmt::format("model.kv_heads = {} does not divide model.heads = {}; every key head serves "
                      "the same whole number of query heads",
                      kv_heads, heads));
  require(hidden >= 0, fmt::format("model.hidden must not be negative, not {}", hidden));
  require(vocabulary > 0, fmt::format("model.vocabulary must be at least 1, not {}", vocabulary));
  require(sequence > 0, fmt::format("train.sequence must be at least 1, not {}", sequence));
  require(dropout >= 0.0 && dropout < 1.0,
          fmt::format("model.dropout must lie in [0, 1), not {}", dropout));
  if (positions == PositionKind::kRope) {
    rope.validate();
    require(size_of_head() % 2 == 0,
            fmt::format("model.width / model.heads = {} must be even: rotary positions turn pairs",
                        size_of_head()));
  }
}

std::int64_t DecoderConfig::parameter_count() const {
  const std::int64_t heads_width = (heads + 2 * key_heads()) * size_of_head();
  const std::int64_t up_width = (is_gated ? 2 : 1) * hidden_size();
  const std::int64_t norm_size = norm == NormKind::kLayerNorm ? 2 * width : width;
  const std::int64_t biases = has_bias ? heads_width + width + up_width + width : 0;
  std::int64_t count =
      vocabulary * width + layers * (block_weights(*this) + biases) + (2 * layers + 1) * norm_size;
  if (positions == PositionKind::kLearned) count += sequence * width;
  if (!is_tied) count += vocabulary * width;
  return count;
}

double DecoderConfig::flops_per_token() const {
  std::int64_t multiplied = parameter_count();
  if (positions == PositionKind::kLearned) multiplied -= sequence * width;
  if (!is_tied) multiplied -= vocabulary * width;
  return 6.0 * static_cast<double>(multiplied) +
         12.0 * layers * static_cast<double>(heads * size_of_head() * sequence);
}

DecoderBlock::DecoderBlock(const BuildContext& build, const DecoderConfig& config,
                           const autograd::RopeTable& rope)
    : Module(build), dropout_(config.dropout) {
  const double residual_std = config.init_std / std::sqrt(2.0 * config.layers);
  const HasBias has_bias = config.has_bias ? HasBias::kYes : HasBias::kNo;
  ln_1_ = add_child("ln_1", make_norm(build.child("ln_1"), config));
  attention_ = add_child("attention", std::make_shared<SelfAttention>(
                                          build.child("attention"),
                                          AttentionConfig{config.width, config.heads,
                                                          config.key_heads(), config.size_of_head(),
                                                          has_bias, config.init_std, residual_std},
                                          rope));
  ln_2_ = add_child("ln_2", make_norm(build.child("ln_2"), config));
  mlp_ = add_child("mlp", std::make_shared<Mlp>(
                              build.child("mlp"),
                              MlpConfig{config.width, config.hidden_size(), config.activation,
                                        config.is_gated, has_bias, config.init_std, residual_std}));
}

Variable DecoderBlock::forward(const Variable& x, const Variable& positions) {
  const Variable attended = attention_->forward(ln_1_->forward(x), positions);
  const auto [h, normed] =
      ln_2_->add(x, maybe_dropout(*this, attended, dropout_, "attention_dropout"));
  const Variable fed = mlp_->forward(normed);
  return autograd::add(h, maybe_dropout(*this, fed, dropout_, "mlp_dropout"));
}

Decoder::Decoder(const BuildContext& build, const DecoderConfig& config)
    : Module(build), config_(config) {
  config.validate();
  tokens_ =
      add_child("tokens", std::make_shared<Embedding>(build.child("tokens"), config.vocabulary,
                                                      config.width, config.init_std));
  if (config.positions == PositionKind::kLearned) {
    positions_ = add_child("positions",
                           std::make_shared<Embedding>(build.child("positions"), config.sequence,
                                                       config.width, config.init_std));
  }
  const autograd::RopeTable rope = make_rope(build, config);
  for (int i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("blocks.{}", i);
    blocks_.push_back(
        add_child(name, std::make_shared<DecoderBlock>(build.child(name), config, rope)));
  }
  ln_f_ = add_child("ln_f", make_norm(build.child("ln_f"), config));
  if (!config.is_tied) {
    head_ = add_child("head",
                      std::make_shared<Linear>(build.child("head"), Shape{config.vocabulary},
                                               Shape{config.width}, config.init_std, HasBias::kNo));
  }
}

/// The table's rows, with learned positions added.
Variable Decoder::embed(const Variable& tokens) {
  const Variable embedded = tokens_->forward(tokens);
  if (positions_ == nullptr) return embedded;
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(tokens.shape()[1]));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Variable positions(Tensor::from(context(), {tokens.shape()[1]}, numbers),
                           autograd::invariant_like(tokens));
  return autograd::add(embedded, positions_->forward(positions));
}

/// What the head multiplies.
Variable Decoder::features(const Variable& tokens) {
  TESSERA_CHECK(tokens.rank() == 2, "decoder: tokens must be [B, T], not {}",
                tokens.shape().to_string());
  TESSERA_CHECK(tokens.shape()[1] <= config_.sequence,
                "decoder: a sequence of {} tokens is longer than the {} positions of the model",
                tokens.shape()[1], config_.sequence);
  Variable h = maybe_dropout(*this, embed(tokens), config_.dropout, "embedding_dropout");
  for (const auto& block : blocks_) h = block->forward(h);
  return ln_f_->forward(h);
}

const Variable& Decoder::head_weight() const {
  return (head_ == nullptr ? tokens_->weight() : head_->weight())->variable;
}

Variable Decoder::forward(const Variable& tokens) {
  return autograd::linear(features(tokens), head_weight());
}

LossTerm Decoder::loss(const Variable& tokens, const Variable& targets, double global_weight) {
  return {"cross_entropy", autograd::linear_cross_entropy(features(tokens), head_weight(), targets),
          global_weight, 1.0};
}

}  // namespace tessera::nn

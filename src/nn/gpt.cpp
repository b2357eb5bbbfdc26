// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/gpt.hpp"

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

}  // namespace

void GptConfig::validate() const {
  require(layers > 0, fmt::format("model.layers must be at least 1, not {}", layers));
  require(width > 0, fmt::format("model.width must be at least 1, not {}", width));
  require(heads > 0, fmt::format("model.heads must be at least 1, not {}", heads));
  require(
      width % heads == 0,
      fmt::format("model.heads = {} does not divide model.width = {}; every head needs the same "
                  "whole number of channels",
                  heads, width));
  require(vocabulary > 0, fmt::format("model.vocabulary must be at least 1, not {}", vocabulary));
  require(sequence > 0, fmt::format("train.sequence must be at least 1, not {}", sequence));
  require(dropout >= 0.0 && dropout < 1.0,
          fmt::format("model.dropout must lie in [0, 1), not {}", dropout));
}

std::int64_t GptConfig::parameter_count() const {
  const std::int64_t c = width;
  return vocabulary * c + sequence * c + layers * (12 * c * c + 13 * c) + 2 * c;
}

GptBlock::GptBlock(const BuildContext& build, const GptConfig& config)
    : Module(build), dropout_(config.dropout) {
  const double residual_std = config.init_std / std::sqrt(2.0 * config.layers);
  ln_1_ = add_child("ln_1", std::make_shared<LayerNorm>(build.child("ln_1"), config.width,
                                                        config.layer_norm_eps));
  attention_ = add_child(
      "attention", std::make_shared<SelfAttention>(build.child("attention"), config.width,
                                                   config.heads, config.init_std, residual_std));
  ln_2_ = add_child("ln_2", std::make_shared<LayerNorm>(build.child("ln_2"), config.width,
                                                        config.layer_norm_eps));
  mlp_ = add_child("mlp", std::make_shared<Mlp>(build.child("mlp"), config.width, config.init_std,
                                                residual_std));
}

Variable GptBlock::forward(const Variable& x) {
  const Variable attended = attention_->forward(ln_1_->forward(x));
  const Variable h =
      autograd::add(x, maybe_dropout(*this, attended, dropout_, "attention_dropout"));
  const Variable fed = mlp_->forward(ln_2_->forward(h));
  return autograd::add(h, maybe_dropout(*this, fed, dropout_, "mlp_dropout"));
}

Gpt::Gpt(const BuildContext& build, const GptConfig& config) : Module(build), config_(config) {
  config.validate();
  tokens_ =
      add_child("tokens", std::make_shared<Embedding>(build.child("tokens"), config.vocabulary,
                                                      config.width, config.init_std));
  positions_ =
      add_child("positions", std::make_shared<Embedding>(build.child("positions"), config.sequence,
                                                         config.width, config.init_std));
  for (int i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("blocks.{}", i);
    blocks_.push_back(add_child(name, std::make_shared<GptBlock>(build.child(name), config)));
  }
  ln_f_ = add_child("ln_f", std::make_shared<LayerNorm>(build.child("ln_f"), config.width,
                                                        config.layer_norm_eps));
}

Variable Gpt::forward(const Variable& tokens) {
  TESSERA_CHECK(tokens.rank() == 2, "gpt: tokens must be [B, T], not {}",
                tokens.shape().to_string());
  const std::int64_t length = tokens.shape()[1];
  TESSERA_CHECK(length <= config_.sequence,
                "gpt: a sequence of {} tokens is longer than the {} positions of the model", length,
                config_.sequence);
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(length));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Variable positions(Tensor::from(context(), {length}, numbers),
                           autograd::invariant_like(tokens));
  Variable h = autograd::add(tokens_->forward(tokens), positions_->forward(positions));
  h = maybe_dropout(*this, h, config_.dropout, "embedding_dropout");
  for (const auto& block : blocks_) h = block->forward(h);
  return autograd::linear(ln_f_->forward(h), tokens_->weight()->variable);
}

LossTerm Gpt::loss(const Variable& tokens, const Variable& targets, double global_weight) {
  return {"cross_entropy", autograd::cross_entropy(forward(tokens), targets), global_weight, 1.0};
}

}  // namespace tessera::nn

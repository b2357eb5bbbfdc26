// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/layers.hpp"

#include <vector>

#include "tessera/autograd/activation.hpp"
#include "tessera/autograd/add.hpp"
#include "tessera/autograd/attention.hpp"
#include "tessera/autograd/embedding.hpp"
#include "tessera/autograd/gated_activation.hpp"
#include "tessera/autograd/layer_norm.hpp"
#include "tessera/autograd/linear.hpp"
#include "tessera/autograd/unbind.hpp"
#include "tessera/core/error.hpp"

namespace tessera::nn {

using autograd::Variable;

Embedding::Embedding(const BuildContext& build, std::int64_t vocabulary, std::int64_t width,
                     double std)
    : Module(build), weight_(add_parameter("weight", {vocabulary, width}, Init::normal(std))) {}

Variable Embedding::forward(const Variable& indices) {
  return autograd::embedding(weight_->variable, indices);
}

Linear::Linear(const BuildContext& build, const Shape& outputs, const Shape& inputs, double std,
               HasBias has_bias)
    : Module(build), contracted_(inputs.rank()) {
  Shape shape = outputs;
  for (const std::int64_t dim : inputs) shape.push_back(dim);
  weight_ = add_parameter("weight", shape, Init::normal(std));
  if (has_bias == HasBias::kYes) {
    bias_ = add_parameter("bias", outputs, Init::zeros(), WeightDecay::kNo);
  }
}

Variable Linear::forward(const Variable& x) {
  if (bias_ == nullptr) return autograd::linear(x, weight_->variable, contracted_);
  return autograd::linear(x, weight_->variable, bias_->variable, contracted_);
}

autograd::NormedSum Norm::add(const Variable& x, const Variable& branch) {
  const Variable sum = autograd::add(x, branch);
  return {sum, forward(sum)};
}

LayerNorm::LayerNorm(const BuildContext& build, std::int64_t width, double eps)
    : Norm(build),
      eps_(eps),
      weight_(add_parameter("weight", {width}, Init::ones(), WeightDecay::kNo)),
      bias_(add_parameter("bias", {width}, Init::zeros(), WeightDecay::kNo)) {}

Variable LayerNorm::forward(const Variable& x) {
  return autograd::layer_norm(x, weight_->variable, bias_->variable, eps_);
}

RmsNorm::RmsNorm(const BuildContext& build, std::int64_t width, double eps)
    : Norm(build),
      eps_(eps),
      weight_(add_parameter("weight", {width}, Init::ones(), WeightDecay::kNo)) {}

Variable RmsNorm::forward(const Variable& x) {
  return autograd::rms_norm(x, weight_->variable, eps_);
}

autograd::NormedSum RmsNorm::add(const Variable& x, const Variable& branch) {
  return autograd::add_rms_norm(x, branch, weight_->variable, eps_);
}

SelfAttention::SelfAttention(const BuildContext& build, const AttentionConfig& config,
                             const autograd::RopeTable& rope)
    : Module(build), rope_(rope) {
  TESSERA_CHECK(config.heads > 0 && config.kv_heads > 0 && config.heads % config.kv_heads == 0,
                "attention: {} key heads do not divide {} heads", config.kv_heads, config.heads);
  const Shape width{config.width};
  const std::int64_t d = config.head_size;
  if (config.heads == config.kv_heads && !rope_.cos.defined()) {
    qkv_ = add_child("qkv", std::make_shared<Linear>(build.child("qkv"), Shape{3, config.heads, d},
                                                     width, config.std, config.has_bias));
  } else {
    q_ = add_child("q", std::make_shared<Linear>(build.child("q"), Shape{config.heads, d}, width,
                                                 config.std, config.has_bias));
    kv_ = add_child("kv", std::make_shared<Linear>(build.child("kv"), Shape{2, config.kv_heads, d},
                                                   width, config.std, config.has_bias));
  }
  projection_ =
      add_child("projection",
                std::make_shared<Linear>(build.child("projection"), width, Shape{config.heads, d},
                                         config.residual_std, config.has_bias));
}

Variable SelfAttention::forward(const Variable& x, const Variable& positions) {
  if (qkv_ != nullptr) return projection_->forward(autograd::attention(qkv_->forward(x)));
  Variable q = q_->forward(x);
  const std::vector<Variable> kv = autograd::unbind(kv_->forward(x), 2);
  Variable k = kv[0];
  if (rope_.cos.defined()) {
    q = autograd::rope(q, rope_, positions);
    k = autograd::rope(k, rope_, positions);
  }
  return projection_->forward(autograd::attention(q, k, kv[1]));
}

Mlp::Mlp(const BuildContext& build, const MlpConfig& config) : Module(build), config_(config) {
  const Shape width{config.width};
  const Shape hidden{config.hidden};
  const char* const name = config.is_gated ? "gate_up" : "up";
  up_ = add_child(name, std::make_shared<Linear>(build.child(name),
                                                 config.is_gated ? Shape{2, config.hidden} : hidden,
                                                 width, config.std, config.has_bias));
  down_ = add_child("down", std::make_shared<Linear>(build.child("down"), width, hidden,
                                                     config.residual_std, config.has_bias));
}

Variable Mlp::forward(const Variable& x) {
  const Variable h = up_->forward(x);
  return down_->forward(config_.is_gated ? autograd::gated_activation(h, config_.activation)
                                         : autograd::activation(h, config_.activation));
}

}  // namespace tessera::nn

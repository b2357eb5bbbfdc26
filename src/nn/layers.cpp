// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/layers.hpp"

#include "tessera/autograd/activation.hpp"
#include "tessera/autograd/attention.hpp"
#include "tessera/autograd/embedding.hpp"
#include "tessera/autograd/layer_norm.hpp"
#include "tessera/autograd/linear.hpp"
#include "tessera/core/error.hpp"

namespace tessera::nn {

using autograd::Variable;

Embedding::Embedding(const BuildContext& build, std::int64_t vocabulary, std::int64_t width,
                     double std)
    : Module(build), weight_(add_parameter("weight", {vocabulary, width}, Init::normal(std))) {}

Variable Embedding::forward(const Variable& indices) {
  return autograd::embedding(weight_->variable, indices);
}

Linear::Linear(const BuildContext& build, const Shape& outputs, const Shape& inputs, double std)
    : Module(build), contracted_(inputs.rank()) {
  Shape shape = outputs;
  for (const std::int64_t dim : inputs) shape.push_back(dim);
  weight_ = add_parameter("weight", shape, Init::normal(std));
  bias_ = add_parameter("bias", outputs, Init::zeros(), WeightDecay::kNo);
}

Variable Linear::forward(const Variable& x) {
  return autograd::linear(x, weight_->variable, bias_->variable, contracted_);
}

LayerNorm::LayerNorm(const BuildContext& build, std::int64_t width, double eps)
    : Module(build),
      eps_(eps),
      weight_(add_parameter("weight", {width}, Init::ones(), WeightDecay::kNo)),
      bias_(add_parameter("bias", {width}, Init::zeros(), WeightDecay::kNo)) {}

Variable LayerNorm::forward(const Variable& x) {
  return autograd::layer_norm(x, weight_->variable, bias_->variable, eps_);
}

SelfAttention::SelfAttention(const BuildContext& build, std::int64_t width, int heads, double std,
                             double residual_std)
    : Module(build) {
  TESSERA_CHECK(heads > 0 && width % heads == 0, "attention: {} heads do not divide the width {}",
                heads, width);
  const std::int64_t head_size = width / heads;
  qkv_ = add_child("qkv", std::make_shared<Linear>(build.child("qkv"), Shape{3, heads, head_size},
                                                   Shape{width}, std));
  projection_ =
      add_child("projection", std::make_shared<Linear>(build.child("projection"), Shape{width},
                                                       Shape{heads, head_size}, residual_std));
}

Variable SelfAttention::forward(const Variable& x) {
  return projection_->forward(autograd::attention(qkv_->forward(x)));
}

Mlp::Mlp(const BuildContext& build, std::int64_t width, double std, double residual_std)
    : Module(build) {
  up_ = add_child("up",
                  std::make_shared<Linear>(build.child("up"), Shape{4 * width}, Shape{width}, std));
  down_ = add_child("down", std::make_shared<Linear>(build.child("down"), Shape{width},
                                                     Shape{4 * width}, residual_std));
}

Variable Mlp::forward(const Variable& x) {
  return down_->forward(autograd::activation(up_->forward(x), ops::Activation::kGelu));
}

}  // namespace tessera::nn

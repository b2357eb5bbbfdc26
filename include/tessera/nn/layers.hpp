// SPDX-License-Identifier: Apache-2.0
// The building blocks of a decoder: embedding, linear, LayerNorm, self-attention, MLP.
#pragma once

#include <memory>

#include "tessera/nn/module.hpp"

namespace tessera::nn {

/// Rows of a [V, C] table.
class Embedding : public Module {
 public:
  Embedding(const BuildContext& build, std::int64_t vocabulary, std::int64_t width, double std);
  autograd::Variable forward(const autograd::Variable& indices);
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
};

/// y = x w^T + b, w [outputs..., inputs...].
class Linear : public Module {
 public:
  /// `outputs` and `inputs` may be several dims each (a packed projection, heads).
  Linear(const BuildContext& build, const Shape& outputs, const Shape& inputs, double std);
  autograd::Variable forward(const autograd::Variable& x);
  const ParameterPtr& weight() const { return weight_; }
  const ParameterPtr& bias() const { return bias_; }

 private:
  int contracted_;
  ParameterPtr weight_, bias_;
};

class LayerNorm : public Module {
 public:
  LayerNorm(const BuildContext& build, std::int64_t width, double eps);
  autograd::Variable forward(const autograd::Variable& x);

 private:
  double eps_;
  ParameterPtr weight_, bias_;
};

/// Causal multi-head self-attention: packed projection [3, H, D, C], attention, output projection.
class SelfAttention : public Module {
 public:
  SelfAttention(const BuildContext& build, std::int64_t width, int heads, double std,
                double residual_std);
  autograd::Variable forward(const autograd::Variable& x);

 private:
  std::shared_ptr<Linear> qkv_, projection_;
};

/// GELU MLP of hidden width 4 C.
class Mlp : public Module {
 public:
  Mlp(const BuildContext& build, std::int64_t width, double std, double residual_std);
  autograd::Variable forward(const autograd::Variable& x);

 private:
  std::shared_ptr<Linear> up_, down_;
};

}  // namespace tessera::nn

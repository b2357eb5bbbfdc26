// SPDX-License-Identifier: Apache-2.0
// The building blocks of a decoder: embedding, linear, norms, self-attention, MLP. x is
// [..., C] of the build's dtype; shapes in brackets are those of parameters.
#pragma once

#include <memory>

#include "tessera/autograd/rms_norm.hpp"
#include "tessera/autograd/rope.hpp"
#include "tessera/nn/module.hpp"
#include "tessera/ops/activation.hpp"

namespace tessera::nn {

/// Rows of a [V, C] table.
class Embedding : public Module {
 public:
  Embedding(const BuildContext& build, std::int64_t vocabulary, std::int64_t width, double std);
  /// indices [...] i32, each below V, give [..., C].
  autograd::Variable forward(const autograd::Variable& indices);
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
};

enum class HasBias { kNo, kYes };

/// y = x w^T (+ b), w [outputs..., inputs...], b [outputs...].
class Linear : public Module {
 public:
  /// `outputs` and `inputs` may be several dims each (a packed projection, heads); the weights
  /// start with normal numbers of `std`, the bias with zeros.
  Linear(const BuildContext& build, const Shape& outputs, const Shape& inputs, double std,
         HasBias has_bias = HasBias::kYes);
  /// x [..., inputs...] gives [..., outputs...].
  autograd::Variable forward(const autograd::Variable& x);
  const ParameterPtr& weight() const { return weight_; }
  /// Null without a bias.
  const ParameterPtr& bias() const { return bias_; }

 private:
  int contracted_;
  ParameterPtr weight_, bias_;
};

/// A norm over the last dim.
class Norm : public Module {
 public:
  using Module::Module;
  /// x [..., C] gives [..., C].
  virtual autograd::Variable forward(const autograd::Variable& x) = 0;
  /// The sum of x and a branch of its shape, and the norm of the sum.
  virtual autograd::NormedSum add(const autograd::Variable& x, const autograd::Variable& branch);
};

class LayerNorm : public Norm {
 public:
  LayerNorm(const BuildContext& build, std::int64_t width, double eps);
  autograd::Variable forward(const autograd::Variable& x) override;

 private:
  double eps_;
  ParameterPtr weight_, bias_;
};

class RmsNorm : public Norm {
 public:
  RmsNorm(const BuildContext& build, std::int64_t width, double eps);
  autograd::Variable forward(const autograd::Variable& x) override;
  autograd::NormedSum add(const autograd::Variable& x, const autograd::Variable& branch) override;

 private:
  double eps_;
  ParameterPtr weight_;
};

struct AttentionConfig {
  std::int64_t width = 0;
  int heads = 1;
  int kv_heads = 1;  ///< divides heads; each serves heads / kv_heads query heads
  std::int64_t head_size = 0;
  HasBias has_bias = HasBias::kYes;
  double std = 0.02;           ///< of the input projections
  double residual_std = 0.02;  ///< of the output projection
};

/// Causal self-attention. One packed projection [3, H, D, C] when every head has its own key;
/// otherwise, and with rotary positions, queries [H, D, C] and packed keys and values [2, G, D, C].
class SelfAttention : public Module {
 public:
  /// `rope`: a table to turn queries and keys by, or an empty one (learned positions).
  SelfAttention(const BuildContext& build, const AttentionConfig& config,
                const autograd::RopeTable& rope = {});
  /// x [B, T, C]; positions [B, T] i32 for the rotation, or undefined: 0, 1, ...
  autograd::Variable forward(const autograd::Variable& x, const autograd::Variable& positions = {});

 private:
  autograd::RopeTable rope_;
  std::shared_ptr<Linear> qkv_, q_, kv_, projection_;
};

struct MlpConfig {
  std::int64_t width = 0;
  std::int64_t hidden = 0;
  ops::Activation activation = ops::Activation::kGelu;
  bool is_gated = false;  ///< act(gate) up, from one packed projection [2, F, C]
  HasBias has_bias = HasBias::kYes;
  double std = 0.02;
  double residual_std = 0.02;
};

class Mlp : public Module {
 public:
  Mlp(const BuildContext& build, const MlpConfig& config);
  /// x [..., C] gives [..., C].
  autograd::Variable forward(const autograd::Variable& x);

 private:
  MlpConfig config_;
  std::shared_ptr<Linear> up_, down_;
};

}  // namespace tessera::nn

// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al., 2019): learned positions, pre-LayerNorm blocks, GELU, tied head.
#pragma once

#include <memory>
#include <vector>

#include "tessera/autograd/type_rule.hpp"
#include "tessera/nn/layers.hpp"
#include "tessera/nn/loss.hpp"
#include "tessera/nn/module.hpp"

namespace tessera::nn {

struct GptConfig {
  int layers = 12;
  std::int64_t width = 768;
  int heads = 12;
  std::int64_t vocabulary = 50257;
  std::int64_t sequence = 1024;  ///< most positions
  double dropout = 0.0;
  double layer_norm_eps = 1e-5;
  double init_std = 0.02;  ///< residual projections start with init_std / sqrt(2 layers)

  /// kConfig errors: sizes not positive, heads not dividing width, dropout outside [0, 1).
  void validate() const;
  /// Parameters by formula: V C + T C + L (12 C^2 + 13 C) + 2 C.
  std::int64_t parameter_count() const;
};

/// One pre-norm block: x + attention(ln_1(x)), then x + mlp(ln_2(x)).
class GptBlock : public Module {
 public:
  GptBlock(const BuildContext& build, const GptConfig& config);
  autograd::Variable forward(const autograd::Variable& x);

 private:
  double dropout_;
  std::shared_ptr<LayerNorm> ln_1_, ln_2_;
  std::shared_ptr<SelfAttention> attention_;
  std::shared_ptr<Mlp> mlp_;
};

class Gpt : public Module {
 public:
  Gpt(const BuildContext& build, const GptConfig& config);

  const GptConfig& config() const { return config_; }
  /// tokens [B, T] i32, T at most config().sequence; logits [B, T, V].
  autograd::Variable forward(const autograd::Variable& tokens);
  /// The sum over tokens of the next-token loss; targets [B, T] i32, negative ones ignored.
  LossTerm loss(const autograd::Variable& tokens, const autograd::Variable& targets,
                double global_weight);
  const std::vector<std::shared_ptr<GptBlock>>& blocks() const { return blocks_; }

 private:
  GptConfig config_;
  std::shared_ptr<Embedding> tokens_, positions_;
  std::vector<std::shared_ptr<GptBlock>> blocks_;
  std::shared_ptr<LayerNorm> ln_f_;
};

}  // namespace tessera::nn

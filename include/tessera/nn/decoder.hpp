// SPDX-License-Identifier: Apache-2.0
// Decoder-only transformers from one configuration: GPT-2 (Radford et al., 2019) and Llama (Touvron
// et al., arXiv 2302.13971; grouped keys: Ainslie et al., arXiv 2305.13245).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tessera/autograd/type_rule.hpp"
#include "tessera/nn/layers.hpp"
#include "tessera/nn/loss.hpp"
#include "tessera/nn/module.hpp"
#include "tessera/nn/rope.hpp"

namespace tessera::nn {

enum class NormKind : std::uint8_t { kLayerNorm, kRmsNorm };
enum class PositionKind : std::uint8_t { kLearned, kRope };

/// The defaults are GPT-2 small.
struct DecoderConfig {
  int layers = 12;
  std::int64_t width = 768;
  int heads = 12;
  int kv_heads = 0;            ///< heads of keys and values; 0: as many as heads
  std::int64_t head_size = 0;  ///< 0: width / heads
  std::int64_t hidden = 0;     ///< of the MLP; 0: 4 width
  std::int64_t vocabulary = 50257;
  std::int64_t sequence = 1024;  ///< most positions
  NormKind norm = NormKind::kLayerNorm;
  double norm_eps = 1e-5;
  ops::Activation activation = ops::Activation::kGelu;
  bool is_gated = false;
  PositionKind positions = PositionKind::kLearned;
  RopeConfig rope{};
  bool has_bias = true;
  bool is_tied = true;  ///< the head is the table of tokens
  double dropout = 0.0;
  double init_std = 0.02;  ///< residual projections start with init_std / sqrt(2 layers)

  /// Llama's kinds (RMSNorm, SwiGLU, RoPE, no biases, an untied head), with the sizes to be set.
  static DecoderConfig llama();

  int key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  std::int64_t size_of_head() const { return head_size == 0 ? width / heads : head_size; }
  std::int64_t hidden_size() const { return hidden == 0 ? 4 * width : hidden; }
  /// kConfig errors: sizes not positive, heads not dividing width or not divided by kv_heads,
  /// dropout outside [0, 1), rotary heads of odd size.
  void validate() const;
  /// Parameters by formula.
  std::int64_t parameter_count() const;
  /// Floating-point operations of a training step per token: 6 N + 12 L H D T, with N the
  /// parameters that multiply (no positions, no table that is only looked up), and the attention
  /// counted whole, not causal (Chowdhery et al., arXiv 2204.02311).
  double flops_per_token() const;
};

/// One pre-norm block: x + attention(norm(x)), then x + mlp(norm(x)).
class DecoderBlock : public Module {
 public:
  DecoderBlock(const BuildContext& build, const DecoderConfig& config,
               const autograd::RopeTable& rope);
  /// x [B, T, C]; positions as in SelfAttention.
  autograd::Variable forward(const autograd::Variable& x, const autograd::Variable& positions = {});

 private:
  double dropout_;
  std::shared_ptr<Norm> ln_1_, ln_2_;
  std::shared_ptr<SelfAttention> attention_;
  std::shared_ptr<Mlp> mlp_;
};

class Decoder : public Module {
 public:
  Decoder(const BuildContext& build, const DecoderConfig& config);

  const DecoderConfig& config() const { return config_; }
  /// tokens [B, T] i32, T at most config().sequence; logits [B, T, V].
  autograd::Variable forward(const autograd::Variable& tokens);
  /// The sum over tokens of the next-token loss; targets [B, T] i32, -1 ignored. The logits of all
  /// tokens never exist at once.
  LossTerm loss(const autograd::Variable& tokens, const autograd::Variable& targets,
                double global_weight);
  const std::vector<std::shared_ptr<DecoderBlock>>& blocks() const { return blocks_; }

 private:
  autograd::Variable embed(const autograd::Variable& tokens);
  autograd::Variable features(const autograd::Variable& tokens);
  const autograd::Variable& head_weight() const;

  DecoderConfig config_;
  std::shared_ptr<Embedding> tokens_, positions_;
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
  std::shared_ptr<Norm> ln_f_;
  std::shared_ptr<Linear> head_;  ///< null when tied
};

}  // namespace tessera::nn

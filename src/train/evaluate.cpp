// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tessera/comm/run_main.hpp"
#include "tessera/io/safetensors.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/spmd/collectives.hpp"

namespace tessera::train {
namespace {

/// Evaluation mode: no graph, no dropout.
class EvaluationScope {
 public:
  explicit EvaluationScope(nn::Module& model)
      : model_(model), was_training_(model.is_training()), no_grad_(model.context()) {
    model.set_training(false);
  }
  ~EvaluationScope() { model_.set_training(was_training_); }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  nn::Module& model_;
  bool was_training_;
  NoGradScope no_grad_;
};

/// Long loops end at once when the user asks to stop.
void check_interrupted() {
  if (comm::is_interrupted()) throw Error(ErrorCode::kInterrupted, "stopped by a signal");
}

std::uint8_t draw(const double* logits, std::int64_t count, double temperature, double uniform) {
  const double most = *std::max_element(logits, logits + count);
  std::vector<double> weights(static_cast<std::size_t>(count));
  double total = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::exp((logits[i] - most) / temperature);
    total += weights[i];
  }
  double left = uniform * total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0.0) return static_cast<std::uint8_t>(i);
  }
  return static_cast<std::uint8_t>(count - 1);
}

}  // namespace

void check_final_loss(double val_loss) {
  if (std::isfinite(val_loss)) return;
  throw Error(
      ErrorCode::kNonFinite,
      fmt::format("the held-out loss at the end is {}: the run has diverged and its weights "
                  "are not kept; lower optim.lr",
                  val_loss));
}

double evaluate(nn::Decoder& model, const data::ByteSamples& samples, const spmd::Mesh& mesh,
                std::string_view group, std::int64_t rows) {
  const EvaluationScope scope(model);
  Context& context = mesh.context();
  const auto& communicator = mesh.communicator(group);
  const ShardingType type = mesh.type(group, AxisType::shard(0));
  const ChunkRange own =
      balanced_chunk(samples.held_out_windows(), 1, communicator->size(), communicator->rank());
  double sum = 0.0;
  double count = 0.0;
  for (std::int64_t at = own.first; at < own.first + own.size; at += rows) {
    check_interrupted();
    const std::int64_t take = std::min(rows, own.first + own.size - at);
    const data::Batch batch = data::to_batch(context, samples.held_out(at, take));
    const nn::LossTerm term = model.loss(autograd::Variable(batch.tokens, type),
                                         autograd::Variable(batch.targets, type), 1.0);
    sum += term.sum.value().item();
    count += static_cast<double>(ops::count_targets(batch.targets));
  }
  const Tensor totals =
      spmd::reduce_value(Tensor::from(context, {2}, std::vector<double>{sum, count}), mesh, group);
  return totals.data<double>()[0] / totals.data<double>()[1];
}

std::string generate(nn::Decoder& model, std::string_view prompt, std::int64_t count,
                     double temperature, std::uint64_t seed) {
  TESSERA_CHECK(!prompt.empty(), "generate: the prompt must not be empty");
  TESSERA_CHECK(temperature > 0.0, "generate: the temperature must be positive, not {}",
                temperature);
  const EvaluationScope scope(model);
  Context& context = model.context();
  const RandomKey key = RandomKey{seed}.child("generate");
  std::string text(prompt);
  for (std::int64_t i = 0; i < count; ++i) {
    check_interrupted();
    const std::size_t window =
        std::min(text.size(), static_cast<std::size_t>(model.config().sequence));
    const std::vector<std::int32_t> tokens =
        data::encode_bytes(std::string_view(text).substr(text.size() - window));
    const Tensor input = Tensor::from(context, {1, static_cast<std::int64_t>(window)}, tokens);
    const Tensor logits =
        model.forward(autograd::Variable(input, ShardingType(model.build().axes))).value();
    const Tensor last = logits.select(0, 0).select(0, static_cast<std::int64_t>(window) - 1);
    const std::vector<double> values =
        ops::cast(ops::contiguous(last), DType::kF64).to_vector<double>();
    const double uniform = random_uniform(key, static_cast<std::uint64_t>(i));
    text += static_cast<char>(draw(values.data(), data::kByteVocabulary, temperature, uniform));
  }
  return text;
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) c = '?';
  }
  return out;
}

void save_weights(const std::filesystem::path& path, const nn::Decoder& model) {
  std::vector<io::NamedTensor> tensors;
  for (const auto& parameter : model.parameters()) {
    tensors.push_back({parameter->name, parameter->variable.value()});
  }
  const nn::DecoderConfig& config = model.config();
  io::write_safetensors(path, tensors,
                        {{"format", "tessera"},
                         {"model.kind", config.is_gated ? "llama" : "gpt"},
                         {"model.layers", fmt::format("{}", config.layers)},
                         {"model.width", fmt::format("{}", config.width)},
                         {"model.heads", fmt::format("{}", config.heads)},
                         {"model.kv_heads", fmt::format("{}", config.key_heads())},
                         {"model.hidden", fmt::format("{}", config.hidden_size())},
                         {"model.vocabulary", fmt::format("{}", config.vocabulary)},
                         {"train.sequence", fmt::format("{}", config.sequence)}});
}

}  // namespace tessera::train

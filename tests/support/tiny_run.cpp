// SPDX-License-Identifier: Apache-2.0
#include "tiny_run.hpp"

#include <algorithm>
#include <cmath>

#include "tessera/autograd/backward.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/optim/clip.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/spmd/collectives.hpp"

namespace tessera::testing {
namespace {

constexpr std::int64_t kVocabulary = 11;

/// Token `column` of global row `row`: a function of the global index only.
std::int32_t token(std::int64_t row, std::int64_t column) {
  const auto index = static_cast<std::uint64_t>(row * 1000 + column);
  return static_cast<std::int32_t>(random_bits(RandomKey{7}, index) % kVocabulary);
}

/// Row `row` has labels for its first few positions only; every fifth row has none.
bool has_label(std::int64_t row, std::int64_t column, std::int64_t length) {
  return row % 5 != 4 && column < 1 + (row * 7) % length;
}

struct Batch {
  Tensor tokens;
  Tensor targets;
};

Batch make_batch(Context& context, std::int64_t first, std::int64_t rows, std::int64_t length) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  for (std::int64_t r = first; r < first + rows; ++r) {
    for (std::int64_t c = 0; c < length; ++c) {
      tokens.push_back(token(r, c));
      targets.push_back(has_label(r, c, length) ? token(r, c + 1) : -1);
    }
  }
  return {Tensor::from(context, {rows, length}, tokens),
          Tensor::from(context, {rows, length}, targets)};
}

std::vector<double> values_of(const Tensor& tensor) {
  return ops::cast(tensor, DType::kF64).to_vector<double>();
}

}  // namespace

TinyRunResult tiny_run(std::shared_ptr<comm::Communicator> world, const TinyRunOptions& options) {
  ContextOptions context_options;
  context_options.rank = world->rank();
  context_options.world_size = world->size();
  context_options.seed = 42;
  context_options.numerics = options.numerics;
  const std::shared_ptr<Context> context = Context::create(context_options);
  const spmd::AxisSpec axes[] = {{"dp", world->size()}};
  const spmd::Mesh mesh(*context, world, axes);

  nn::DecoderConfig config;
  config.layers = 2;
  config.width = 12;
  config.heads = 3;
  config.vocabulary = kVocabulary;
  config.sequence = options.length;
  config.dropout = options.dropout;
  config.init_std = 0.2;
  nn::Decoder model(nn::BuildContext{context.get(), mesh.axes(), options.dtype, ""}, config);
  std::unique_ptr<parallel::Ddp> ddp;
  if (options.uses_ddp) ddp = std::make_unique<parallel::Ddp>(model, mesh, "dp", options.ddp);
  const std::vector<spmd::ParameterPtr> parameters = model.parameters();
  optim::AdamW optimizer(parameters, {});
  const optim::WarmupCosine schedule{options.lr, options.lr / 10, 3, options.steps};
  const ShardingType rows_type = mesh.type("dp", AxisType::shard(0));
  const std::int64_t local_rows = options.rows / world->size();

  TinyRunResult result;
  for (int step = 0; step < options.steps; ++step) {
    const std::int64_t first_row = step * options.rows * options.accumulation;
    double weight = 0.0;
    for (std::int64_t r = 0; r < options.rows * options.accumulation; ++r) {
      for (std::int64_t c = 0; c < options.length; ++c) {
        weight += has_label(first_row + r, c, options.length) ? 1.0 : 0.0;
      }
    }
    const bool traced = options.traces && step + 1 == options.steps;
    context->profiler().set_enabled(traced);
    double loss = 0.0;
    for (int a = 0; a < options.accumulation; ++a) {
      const std::int64_t origin = a * options.rows;
      context->set_batch_origin({static_cast<std::uint64_t>(step), origin});
      const Batch batch = make_batch(*context, first_row + origin + world->rank() * local_rows,
                                     local_rows, options.length);
      const nn::LossTerm terms[] = {model.loss(autograd::Variable(batch.tokens, rows_type),
                                               autograd::Variable(batch.targets, rows_type),
                                               weight)};
      loss += nn::local_loss(terms);
      if (ddp != nullptr && a + 1 == options.accumulation) ddp->begin_last_backward();
      autograd::backward(nn::loss_roots(terms));
    }
    if (ddp != nullptr) ddp->finish_step();
    context->profiler().set_enabled(false);
    const Tensor total = Tensor::from(*context, {1}, std::vector<double>{loss});
    result.losses.push_back(spmd::reduce_value(total, mesh, "dp").item());
    const double norm = optim::gradient_norm(parameters, mesh.world().get());
    result.norms.push_back(norm);
    if (step + 1 == options.steps) {
      for (const auto& p : parameters) result.gradients[p->name] = values_of(p->variable.grad());
    }
    optimizer.step(schedule.at(step), optim::clip_coefficient(norm, options.clip));
    optimizer.zero_grad();
    result.used_bytes.push_back(context->memory().current_total());
    result.cached_bytes.push_back(context->allocator().cached_bytes());
  }
  for (const auto& p : parameters) result.weights[p->name] = values_of(p->variable.value());
  result.events = context->profiler().events();
  return result;
}

double relative_difference(const std::map<std::string, std::vector<double>>& a,
                           const std::map<std::string, std::vector<double>>& b) {
  if (a.size() != b.size()) return INFINITY;
  const auto largest = [](const std::vector<double>& values) {
    double most = 0.0;
    for (const double v : values) most = std::max(most, std::abs(v));
    return most;
  };
  double overall = 0.0;
  for (const auto& [name, values] : a) overall = std::max(overall, largest(values));
  double worst = 0.0;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return INFINITY;
    const double scale = std::max(largest(values), 1e-3 * overall);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(values[i] - other->second[i]);
      if (!(difference <= worst * scale)) worst = difference / scale;
    }
  }
  return worst;
}

}  // namespace tessera::testing

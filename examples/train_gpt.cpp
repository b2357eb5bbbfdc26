// SPDX-License-Identifier: Apache-2.0
// Trains a GPT on a text file, byte by byte, data-parallel over all ranks:
//   mpirun -n 2 train_gpt --config examples/configs/quickstart.toml --set data.path=book.txt
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "tessera/autograd/backward.hpp"
#include "tessera/comm/affinity.hpp"
#include "tessera/comm/run_main.hpp"
#include "tessera/data/batch_plan.hpp"
#include "tessera/data/prefetch.hpp"
#include "tessera/optim/clip.hpp"
#include "tessera/parallel/ddp.hpp"
#include "tessera/spmd/collectives.hpp"
#include "tessera/train/evaluate.hpp"
#include "tessera/train/open_text.hpp"
#include "tessera/train/report.hpp"
#include "tessera/train/skip_rule.hpp"

using namespace tessera;

namespace {

constexpr const char* kUsage = "usage: train_gpt --config FILE [--set section.key=value]...";

train::Config read_arguments(int argc, char** argv) {
  std::string file;
  std::vector<std::string> assignments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if ((argument != "--config" && argument != "--set") || i + 1 == argc) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("unexpected argument \"{}\"; {}", argument, kUsage));
    }
    if (argument == "--config") file = argv[++i];
    if (argument == "--set") assignments.emplace_back(argv[++i]);
  }
  if (file.empty()) throw Error(ErrorCode::kConfig, kUsage);
  return train::load_config(file, assignments);
}

void train_gpt(const train::Config& config, const std::shared_ptr<comm::Communicator>& world) {
  train::check_ranks_agree(config, *world);
  world->set_timeout(config.timeout());
  ContextOptions options;
  options.rank = world->rank();
  options.world_size = world->size();
  options.threads = comm::rank_threads(*world);
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  const std::shared_ptr<Context> context = Context::create(options);

  // One mesh axis: every rank sees its own rows of the batch.
  const spmd::AxisSpec axes[] = {{"dp", world->size()}};
  const spmd::Mesh mesh(*context, world, axes);
  const ShardingType rows_type = mesh.type("dp", AxisType::shard(0));

  const data::ByteSamples samples(train::open_text(config, *world), config.train.sequence,
                                  options.seed);
  const data::BatchPlan plan{config.train.batch, world->size(), world->rank(),
                             config.train.accumulation};
  plan.check_enough(samples.training_windows());
  nn::Decoder model(nn::BuildContext{context.get(), mesh.axes(), DType::kF32, ""},
                    config.decoder());
  const auto bucket_bytes = static_cast<std::size_t>(config.parallel.bucket_mib * 1024 * 1024);
  parallel::Ddp ddp(model, mesh, "dp", {bucket_bytes, DType::kF32});
  const auto parameters = model.parameters();
  optim::AdamW optimizer(parameters, config.adamw());
  const optim::WarmupCosine schedule = config.schedule();
  train::RunDirectory directory(config, *world);
  train::Reporter reporter(config, *context, *world, directory);
  if (world->rank() == 0) {
    fmt::print("{} parameters, {} rank(s) x {} thread(s), run directory {}\n",
               model.parameter_count(), world->size(), options.threads, directory.path().string());
  }

  const auto make_batch = [&](std::int64_t index) {
    const std::int64_t step = index / plan.accumulation;
    return samples.training(plan.first_sample(step, index % plan.accumulation), plan.rows);
  };
  data::Prefetch batches(*context, make_batch, {0, config.train.steps * plan.accumulation});
  // Every token has a target, so that the global weight of the loss is known.
  const auto weight = static_cast<double>(plan.step_rows() * config.train.sequence);
  train::SkipRule skip_rule(config.train.skip_limit, context->log());
  train::StepClock clock;
  for (std::int64_t step = 0; step < config.train.steps; ++step) {
    clock.start();
    double loss = 0.0;
    for (std::int64_t a = 0; a < plan.accumulation; ++a) {
      if (comm::is_interrupted()) throw Error(ErrorCode::kInterrupted, "stopped by a signal");
      clock.enter(train::LedgerPart::kData);
      const data::Batch batch = batches.next();
      clock.enter(train::LedgerPart::kCompute);
      context->set_batch_origin({static_cast<std::uint64_t>(step), plan.first_row(a)});
      const nn::LossTerm terms[] = {model.loss(autograd::Variable(batch.tokens, rows_type),
                                               autograd::Variable(batch.targets, rows_type),
                                               weight)};
      loss += nn::local_loss(terms);
      if (a + 1 == plan.accumulation) ddp.begin_last_backward();
      autograd::backward(nn::loss_roots(terms));
    }
    clock.enter(train::LedgerPart::kCommDp);
    ddp.finish_step();
    const Tensor total =
        spmd::reduce_value(Tensor::from(*context, {1}, std::vector<double>{loss}), mesh, "dp");
    const double norm = optim::gradient_norm(parameters, world.get());
    clock.enter(train::LedgerPart::kCompute);
    const double lr = schedule.at(optimizer.steps());
    if (skip_rule.allows(norm)) {  // finite
      optimizer.step(lr, optim::clip_coefficient(norm, config.train.clip));
    }
    optimizer.zero_grad();
    clock.stop();
    train::StepResult result{step + 1, total.item(), norm, lr, skip_rule.skipped(), {}};
    const bool is_last = step + 1 == config.train.steps;
    const std::int64_t every = config.train.evaluate_every;
    if (is_last || (every > 0 && (step + 1) % every == 0)) {
      result.val_loss = train::evaluate(model, samples, mesh, "dp", config.train.batch);
    }
    reporter.step(result, clock);
    if (is_last) train::check_final_loss(*result.val_loss);
  }
  if (world->rank() == 0) {
    train::save_weights(directory.weights(), model);
    const std::string text =
        train::generate(model, "And ", config.log.sample, config.log.temperature, options.seed);
    fmt::print("\n{}\n", train::printable(text));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    fmt::print("{}\n", kUsage);
    return 0;
  }
  return comm::run_main([&](const std::shared_ptr<comm::Communicator>& world) {
    train_gpt(read_arguments(argc, argv), world);
    return 0;
  });
}

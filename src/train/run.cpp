// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/run.hpp"

#include <fmt/format.h>

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

namespace tessera::train {
namespace {

std::shared_ptr<Context> make_context(const Config& config, comm::Communicator& world) {
  ContextOptions options;
  options.rank = world.rank();
  options.world_size = world.size();
  options.threads = comm::rank_threads(world);
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  return Context::create(options);
}

spmd::Mesh make_mesh(const Config& config, Context& context,
                     const std::shared_ptr<comm::Communicator>& world) {
  const auto ranks = static_cast<int>(config.parallel.dp_replicate);
  const spmd::AxisSpec axes[] = {{"dp", ranks == 0 ? world->size() : ranks}};
  return spmd::Mesh(context, world, axes);
}

data::BatchPlan make_plan(const Config& config, const comm::Communicator& world,
                          const data::ByteSamples& samples) {
  const data::BatchPlan plan{config.train.batch, world.size(), world.rank(),
                             config.train.accumulation};
  plan.check_enough(samples.training_windows());
  return plan;
}

class Run {
 public:
  Run(const Config& config, const std::shared_ptr<comm::Communicator>& world)
      : config_(config),
        world_(world),
        context_(make_context(config, *world)),
        mesh_(make_mesh(config, *context_, world)),
        samples_(open_text(config, *world), config.train.sequence, context_->options().seed),
        plan_(make_plan(config, *world, samples_)),
        model_(nn::BuildContext{context_.get(), mesh_.axes(), DType::kF32, ""}, config.decoder()),
        ddp_(model_, mesh_, "dp",
             {static_cast<std::size_t>(config.parallel.bucket_mib * 1024 * 1024), DType::kF32}),
        parameters_(model_.parameters()),
        optimizer_(parameters_, config.adamw()),
        directory_(config, *world),
        reporter_(config, *context_, *world, directory_),
        batches_(*context_, [this](std::int64_t index) { return make_batch(index); },
                 {0, config.train.steps * config.train.accumulation}),
        skip_rule_(config.train.skip_limit, context_->log()) {}

  void train() {
    if (world_->rank() == 0) {
      fmt::print("{} parameters, {} rank(s) x {} thread(s), run directory {}\n",
                 model_.parameter_count(), world_->size(), context_->options().threads,
                 directory_.path().string());
    }
    for (std::int64_t step = 0; step < config_.train.steps; ++step) {
      StepResult result = train_step(step);
      const std::int64_t every = config_.train.evaluate_every;
      if (step + 1 == config_.train.steps || (every > 0 && (step + 1) % every == 0)) {
        result.val_loss = evaluate(model_, samples_, mesh_, "dp", config_.train.batch);
      }
      reporter_.step(result, clock_);
      if (step + 1 == config_.train.steps) check_final_loss(*result.val_loss);
    }
    if (world_->rank() != 0) return;
    save_weights(directory_.weights(), model_);
    if (config_.log.sample == 0) return;
    const std::string text = generate(model_, "And ", config_.log.sample, config_.log.temperature,
                                      context_->options().seed);
    fmt::print("\n{}\n", printable(text));
  }

 private:
  StepResult train_step(std::int64_t step) {
    clock_.start();
    double loss = 0.0;
    for (std::int64_t a = 0; a < config_.train.accumulation; ++a) loss += micro_batch(step, a);
    clock_.enter(LedgerPart::kCommDp);
    ddp_.finish_step();
    const Tensor total =
        spmd::reduce_value(Tensor::from(*context_, {1}, std::vector<double>{loss}), mesh_, "dp");
    const double norm = optim::gradient_norm(parameters_, world_.get());
    clock_.enter(LedgerPart::kCompute);
    const double lr = config_.schedule().at(optimizer_.steps());
    if (skip_rule_.allows(norm)) {
      optimizer_.step(lr, optim::clip_coefficient(norm, config_.train.clip));
    }
    optimizer_.zero_grad();
    clock_.stop();
    return {step + 1, total.item(), norm, lr, skip_rule_.skipped(), {}};
  }

  /// This rank's rows of the run's micro-batch `index`. Runs on the thread of batches_.
  data::HostBatch make_batch(std::int64_t index) const {
    const std::int64_t step = index / plan_.accumulation;
    return samples_.training(plan_.first_sample(step, index % plan_.accumulation), plan_.rows);
  }

  /// Forward and backward of micro-batch `a`; this rank's part of the loss.
  double micro_batch(std::int64_t step, std::int64_t a) {
    if (comm::is_interrupted()) throw Error(ErrorCode::kInterrupted, "stopped by a signal");
    clock_.enter(LedgerPart::kData);
    const data::Batch batch = batches_.next();
    clock_.enter(LedgerPart::kCompute);
    context_->set_batch_origin({static_cast<std::uint64_t>(step), plan_.first_row(a)});
    const ShardingType type = mesh_.type("dp", AxisType::shard(0));
    // Every token of the training part has a target, so the global weight is known.
    const nn::LossTerm terms[] = {
        model_.loss(autograd::Variable(batch.tokens, type), autograd::Variable(batch.targets, type),
                    static_cast<double>(plan_.step_rows() * config_.train.sequence))};
    const double loss = nn::local_loss(terms);
    if (a + 1 == config_.train.accumulation) ddp_.begin_last_backward();
    autograd::backward(nn::loss_roots(terms));
    return loss;
  }

  const Config& config_;
  std::shared_ptr<comm::Communicator> world_;
  std::shared_ptr<Context> context_;
  spmd::Mesh mesh_;
  data::ByteSamples samples_;
  data::BatchPlan plan_;
  nn::Decoder model_;
  parallel::Ddp ddp_;
  std::vector<spmd::ParameterPtr> parameters_;
  optim::AdamW optimizer_;
  RunDirectory directory_;
  Reporter reporter_;
  data::Prefetch batches_;
  StepClock clock_;
  SkipRule skip_rule_;
};

}  // namespace

void run(const Config& config, const std::shared_ptr<comm::Communicator>& world) {
  validate(config);
  world->set_timeout(config.timeout());
  check_ranks_agree(config, *world);
  Run(config, world).train();
}

}  // namespace tessera::train

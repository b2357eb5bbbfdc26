// SPDX-License-Identifier: Apache-2.0
// Training steps of a fixed model on random tokens: tokens per second, how a step splits into
// forward, backward (with the reductions) and optimizer, peak memory, and the FLOP rate against the
// SGEMM rate measured in the same process. peer_torch.py takes the same flags and prints the same
// fields. Under mpirun the ranks train together with Ddp, or with --independent each on its own,
// for comparison; tokens per second are those of all ranks.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/backward.hpp"
#include "tessera/comm/backends.hpp"
#include "tessera/comm/run_main.hpp"
#include "tessera/core/context.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/parallel/ddp.hpp"
#include "tessera/train/report.hpp"

namespace {

using namespace tessera;

struct Options {
  std::string model = "gpt-10m";
  std::int64_t batch = 8;
  std::int64_t sequence = 256;
  int threads = 2;
  int steps = 5;
  bool is_json = false;
  bool shows_ops = false;
  bool is_independent = false;
};

nn::DecoderConfig llama_60m() {
  nn::DecoderConfig config = nn::DecoderConfig::llama();
  config.layers = 8;
  config.width = 512;
  config.heads = 8;
  config.kv_heads = 4;
  config.hidden = 1408;
  config.vocabulary = 32000;
  return config;
}

const std::map<std::string, nn::DecoderConfig>& models() {
  static const std::map<std::string, nn::DecoderConfig> all{
      {"gpt2-124m", {.layers = 12, .width = 768, .heads = 12, .vocabulary = 50257}},
      {"llama-60m", llama_60m()},
      {"gpt-10m", {.layers = 6, .width = 384, .heads = 6, .vocabulary = 256}},
  };
  return all;
}

/// Milliseconds of the parts of a step.
struct StepTime {
  double forward = 0.0;
  double backward = 0.0;
  double optimizer = 0.0;
  double total() const { return forward + backward + optimizer; }
};

class Bench {
 public:
  Bench(const Options& options, std::shared_ptr<comm::Communicator> world)
      : options_(options), config_(models().at(options.model)), world_(std::move(world)) {
    config_.sequence = options.sequence;
    ContextOptions context;
    context.threads = options.threads;
    context.rank = world_->rank();
    context.world_size = world_->size();
    context_ = Context::create(context);
    const auto group = options.is_independent ? comm::make_world("self") : world_;
    const spmd::AxisSpec axes[] = {{"dp", group->size()}};
    mesh_ = std::make_unique<spmd::Mesh>(*context_, group, axes);
    state_ = static_cast<std::uint64_t>(world_->rank()) + 1;
  }

  void run() {
    const double sgemm = train::measure_sgemm(*context_);
    nn::Decoder model(nn::BuildContext{context_.get(), mesh_->axes(), DType::kF32, ""}, config_);
    parallel::Ddp ddp(model, *mesh_, "dp");
    ddp_ = &ddp;
    optim::AdamW optimizer(model.parameters(), {.weight_decay = 0.1});
    std::vector<StepTime> times;
    step(model, optimizer);  // pays for memory and code
    world_->barrier().wait();
    for (int i = 0; i < options_.steps; ++i) times.push_back(step(model, optimizer));
    std::sort(times.begin(), times.end(),
              [](const StepTime& a, const StepTime& b) { return a.total() < b.total(); });
    report(times, sgemm);
    if (!options_.shows_ops) return;
    context_->profiler().set_enabled(true);
    step(model, optimizer);
    show_ops();
  }

 private:
  Tensor tokens() {
    std::vector<std::int32_t> values(static_cast<std::size_t>(options_.batch * options_.sequence));
    for (std::int32_t& value : values) {
      state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      value = static_cast<std::int32_t>((state_ >> 33) %
                                        static_cast<std::uint64_t>(config_.vocabulary));
    }
    return Tensor::from(*context_, {options_.batch, options_.sequence}, values);
  }

  StepTime step(nn::Decoder& model, optim::AdamW& optimizer) {
    const ShardingType rows = mesh_->type("dp", AxisType::shard(0));
    const autograd::Variable inputs(tokens(), rows);
    const autograd::Variable targets(tokens(), rows);
    StepTime time;
    auto begin = Clock::now();
    const auto lap = [&begin] {
      const auto now = Clock::now();
      const double ms = std::chrono::duration<double, std::milli>(now - begin).count();
      begin = now;
      return ms;
    };
    {
      const nn::LossTerm terms[] = {model.loss(
          inputs, targets, static_cast<double>(targets.value().numel() * mesh_->size("dp")))};
      time.forward = lap();
      ddp_->begin_last_backward();
      autograd::backward(nn::loss_roots(terms));
    }
    ddp_->finish_step();
    time.backward = lap();
    optimizer.step(1e-4, 1.0);
    optimizer.zero_grad();
    time.optimizer = lap();
    return time;
  }

  /// Milliseconds of one step by op, forward and backward.
  void show_ops() const {
    std::map<std::string, double> total;
    for (const Profiler::Event& event : context_->profiler().events()) {
      total[fmt::format("{} {}", event.name, event.category)] +=
          std::chrono::duration<double, std::milli>(event.end - event.begin).count();
    }
    std::vector<std::pair<double, std::string>> rows;
    for (const auto& [name, ms] : total) rows.emplace_back(ms, name);
    std::sort(rows.rbegin(), rows.rend());
    for (const auto& [ms, name] : rows) fmt::print("{:10.2f} ms  {}\n", ms, name);
  }

  void report(const std::vector<StepTime>& times, double own_sgemm) const {
    const Tensor sums = Tensor::from(*context_, {1}, std::vector<double>{own_sgemm});
    world_->all_reduce(sums).wait();
    if (world_->rank() != 0) return;
    const double sgemm = sums.item();
    const StepTime& median = times[times.size() / 2];
    const auto tokens = static_cast<double>(options_.batch * options_.sequence * world_->size());
    const double rate = tokens / median.total() * 1000.0;
    const double best = tokens / times.front().total() * 1000.0;
    const double utilisation = rate * config_.flops_per_token() / sgemm;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto rss = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
    const auto peak = static_cast<std::int64_t>(context_->memory().peak_total());
    if (options_.is_json) {
      fmt::print(
          "{{\"bench\":\"train_step\",\"peer\":\"tessera\",\"model\":\"{}\",\"batch\":{},"
          "\"sequence\":{},\"threads\":{},\"tokens_per_second\":{:.1f},"
          "\"best_tokens_per_second\":{:.1f},\"forward_ms\":{:.1f},\"backward_ms\":{:.1f},"
          "\"optimizer_ms\":{:.1f},\"peak_bytes\":{},\"rss_bytes\":{},\"sgemm_gflops\":{:.1f},"
          "\"flop_utilisation\":{:.3f}}}\n",
          options_.model, options_.batch, options_.sequence, options_.threads, rate, best,
          median.forward, median.backward, median.optimizer, peak, rss, sgemm * 1e-9, utilisation);
      return;
    }
    fmt::print(
        "{} B={} T={} threads={}: {:.0f} tokens/s (best {:.0f}); forward {:.0f} ms, backward "
        "{:.0f} "
        "ms, optimizer {:.0f} ms; allocator peak {}, RSS peak {}; {:.2f} of sgemm ({:.0f} GF/s)\n",
        options_.model, options_.batch, options_.sequence, options_.threads, rate, best,
        median.forward, median.backward, median.optimizer,
        format_bytes(static_cast<std::size_t>(peak)), format_bytes(static_cast<std::size_t>(rss)),
        utilisation, sgemm * 1e-9);
  }

  using Clock = std::chrono::steady_clock;
  Options options_;
  nn::DecoderConfig config_;
  std::shared_ptr<comm::Communicator> world_;
  std::shared_ptr<Context> context_;
  std::unique_ptr<spmd::Mesh> mesh_;
  parallel::Ddp* ddp_ = nullptr;
  std::uint64_t state_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Training steps of a fixed model on random tokens");
  std::vector<std::string> names;
  for (const auto& [name, config] : models()) names.push_back(name);
  app.add_option("--model", options.model)->check(CLI::IsMember(names))->capture_default_str();
  app.add_option("--batch", options.batch, "sequences")->check(CLI::PositiveNumber);
  app.add_option("--seq", options.sequence, "tokens per sequence")->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "timed, after one that is not")
      ->check(CLI::PositiveNumber);
  app.add_flag("--independent", options.is_independent, "no communication between ranks");
  app.add_flag("--ops", options.shows_ops, "then one step's time by op");
  app.add_flag("--json", options.is_json, "one JSON line");
  CLI11_PARSE(app, argc, argv);
  return comm::run_main([&options](const std::shared_ptr<comm::Communicator>& world) {
    Bench(options, world).run();
    return 0;
  });
}

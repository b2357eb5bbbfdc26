// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tessera/ops/copy.hpp"
#include "tessera/ops/matmul.hpp"

namespace tessera::train {
namespace {

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                      : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

io::JsonLine memory_line(const MemoryTracker& memory) {
  io::JsonLine line;
  line.integer("peak_bytes", static_cast<std::int64_t>(memory.peak_total()));
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    line.integer(to_string(category), static_cast<std::int64_t>(memory.peak(category)));
  }
  return line;
}

}  // namespace

double measure_sgemm(Context& context) {
  constexpr std::int64_t kSize = 512;
  constexpr int kLeast = 10;  // the first ones pay for pages and code; others may be interrupted
  const Tensor a = Tensor::zeros(context, {kSize, kSize}, DType::kF32);
  const Tensor b = Tensor::zeros(context, {kSize, kSize}, DType::kF32);
  ops::fill(a, 0.5);
  ops::fill(b, 0.25);
  double best = 0.0;
  const auto begin = StepClock::Clock::now();
  for (int i = 0; i < kLeast || StepClock::Clock::now() - begin < std::chrono::milliseconds(50);
       ++i) {
    const auto start = StepClock::Clock::now();
    ops::matmul(a, b);
    const std::chrono::duration<double> took = StepClock::Clock::now() - start;
    best = std::max(best, 2.0 * kSize * kSize * kSize / took.count());
  }
  return best;
}

Reporter::Reporter(const Config& config, Context& context, comm::Communicator& world,
                   RunDirectory& directory)
    : config_(config),
      context_(context),
      world_(world),
      directory_(directory),
      peak_flops_(measure_sgemm(context) * world.size()),
      begin_(StepClock::Clock::now()) {}

void Reporter::step(const StepResult& result, const StepClock& clock) {
  if (world_.rank() != 0) return;
  const double ms = clock.step_ms();
  const std::int64_t per_step =
      config_.train.batch * config_.train.accumulation * config_.train.sequence * world_.size();
  const double rate = static_cast<double>(per_step) / ms * 1000.0;
  line_ms_ += ms;
  ++line_steps_;
  const double mfu = rate * config_.decoder().flops_per_token() / peak_flops_;
  io::JsonLine line;
  line.integer("step", result.step)
      .integer("tokens", result.step * per_step)
      .number("loss", result.loss)
      .number("grad_norm", result.grad_norm)
      .number("lr", result.lr)
      .number("tokens_per_second", rate)
      .number("step_ms", ms)
      .number("mfu", mfu)
      .integer("skipped", result.skipped)
      .object("memory", memory_line(context_.memory()))
      .object("ledger_ms", clock.ledger());
  if (result.val_loss) line.number("val_loss", *result.val_loss);
  directory_.append_metrics(line.str());
  const bool is_last = result.step == config_.train.steps;
  if (result.step % config_.log.every == 0 || is_last || result.val_loss) print(result);
}

void Reporter::print(const StepResult& result) {
  const std::int64_t tokens = line_steps_ * config_.train.batch * config_.train.accumulation *
                              config_.train.sequence * world_.size();
  const double rate = static_cast<double>(tokens) / line_ms_ * 1000.0;
  const double mfu = rate * config_.decoder().flops_per_token() / peak_flops_;
  line_ms_ = 0.0;
  line_steps_ = 0;
  const std::chrono::duration<double> elapsed = StepClock::Clock::now() - begin_;
  const double left = elapsed.count() / static_cast<double>(result.step) *
                      static_cast<double>(config_.train.steps - result.step);
  fmt::print("step {:>6}/{}  loss {:.4f}{}  {:>8.0f} tokens/s  mfu {:.2f} of sgemm  left {}  {}\n",
             result.step, config_.train.steps, result.loss,
             result.val_loss ? fmt::format("  held-out {:.4f}", *result.val_loss) : "", rate, mfu,
             duration_text(left), format_bytes(context_.memory().peak_total()));
  std::fflush(stdout);
}

}  // namespace tessera::train

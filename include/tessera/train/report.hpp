// SPDX-License-Identifier: Apache-2.0
// What a run tells: a metrics line per step, and a progress line for people.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/core/context.hpp"
#include "tessera/train/config.hpp"
#include "tessera/train/run_directory.hpp"
#include "tessera/train/step_clock.hpp"

namespace tessera::train {

/// The f32 matmul rate of this rank's threads in FLOP/s: the best of at least ten, for 50 ms.
double measure_sgemm(Context& context);

struct StepResult {
  std::int64_t step = 0;  ///< steps done, from 1
  double loss = 0.0;      ///< global, nats per token
  double grad_norm = 0.0;
  double lr = 0.0;
  std::int64_t skipped = 0;  ///< steps skipped so far for a gradient that was not finite
  std::optional<double> val_loss;
};

class Reporter {
 public:
  /// Measures the SGEMM rate. `directory` outlives the reporter.
  Reporter(const Config& config, Context& context, comm::Communicator& world,
           RunDirectory& directory);

  /// Writes the metrics line of a step, and every log.every steps (and at the end, and with an
  /// evaluation) a progress line on rank 0's standard output: the step's loss; tokens/s and MFU
  /// over the steps since the line before; the time left, evaluations counted in; peak memory. A
  /// plain line with no colour and no cursor movement: launchers give ranks a terminal of their own
  /// even when the output goes to a file.
  void step(const StepResult& result, const StepClock& clock);

 private:
  Config config_;
  Context& context_;
  comm::Communicator& world_;
  RunDirectory& directory_;
  void print(const StepResult& result);

  double peak_flops_;
  double line_ms_ = 0.0;  ///< of the steps since the last progress line
  std::int64_t line_steps_ = 0;
  StepClock::Clock::time_point begin_;
};

}  // namespace tessera::train

// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes. The parts and "other" add up to the step's wall time.
#pragma once

#include <array>
#include <chrono>

#include "tessera/io/json_line.hpp"

namespace tessera::train {

enum class LedgerPart { kCompute, kCommDp, kData, kCheckpoint };

class StepClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts a step: forgets the parts.
  void start();
  /// From now on time belongs to `part`.
  void enter(LedgerPart part);
  /// From now on time belongs to "other".
  void leave();
  /// Ends the step; what follows (an evaluation, a report) is not counted.
  void stop();
  /// Milliseconds from start() to stop().
  double step_ms() const;
  /// "ledger_ms" of a metrics line, every part of the format.
  io::JsonLine ledger() const;

 private:
  std::array<double, 4> parts_{};
  Clock::time_point start_;
  double step_ms_ = 0.0;
  Clock::time_point entered_;
  int current_ = -1;
};

}  // namespace tessera::train

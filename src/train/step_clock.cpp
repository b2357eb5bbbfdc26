// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/step_clock.hpp"

#include <cstddef>

namespace tessera::train {
namespace {

double milliseconds(StepClock::Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

void StepClock::start() {
  parts_ = {};
  current_ = -1;
  start_ = Clock::now();
}

void StepClock::enter(LedgerPart part) {
  leave();
  current_ = static_cast<int>(part);
  entered_ = Clock::now();
}

void StepClock::leave() {
  if (current_ >= 0) {
    parts_[static_cast<std::size_t>(current_)] += milliseconds(Clock::now() - entered_);
  }
  current_ = -1;
}

void StepClock::stop() {
  leave();
  step_ms_ = milliseconds(Clock::now() - start_);
}

double StepClock::step_ms() const { return step_ms_; }

io::JsonLine StepClock::ledger() const {
  const auto part = [this](LedgerPart p) { return parts_[static_cast<std::size_t>(p)]; };
  double known = 0.0;
  for (const double ms : parts_) known += ms;
  io::JsonLine line;
  line.number("compute", part(LedgerPart::kCompute)).number("comm_dp", part(LedgerPart::kCommDp));
  for (const char* axis : {"comm_tp", "comm_pp", "comm_cp", "comm_ep", "bubble"}) {
    line.number(axis, 0.0);
  }
  line.number("data", part(LedgerPart::kData))
      .number("checkpoint", part(LedgerPart::kCheckpoint))
      .number("other", step_ms() - known);
  return line;
}

}  // namespace tessera::train

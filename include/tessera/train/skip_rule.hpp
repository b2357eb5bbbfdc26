// SPDX-License-Identifier: Apache-2.0
// Whether a step's update is done. A step whose gradient is not finite is skipped, counted, and
// logged; too many in a row end the run.
#pragma once

#include <cstdint>

#include "tessera/core/log.hpp"

namespace tessera::train {

class SkipRule {
 public:
  /// `limit`: skipped steps in a row before the run fails. `log` outlives the rule.
  SkipRule(std::int64_t limit, Logger& log) : limit_(limit), log_(log) {}

  /// True when the step may update the weights: `norm` is finite. Otherwise the step is counted;
  /// Error{kNonFinite} beyond the limit.
  bool allows(double norm);
  /// Steps skipped so far.
  std::int64_t skipped() const { return skipped_; }

 private:
  std::int64_t limit_;
  Logger& log_;
  std::int64_t skipped_ = 0;
  std::int64_t in_a_row_ = 0;
};

}  // namespace tessera::train

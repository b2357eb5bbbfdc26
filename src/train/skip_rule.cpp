// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/skip_rule.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tessera/core/error.hpp"

namespace tessera::train {

bool SkipRule::allows(double norm) {
  if (std::isfinite(norm)) {
    in_a_row_ = 0;
    return true;
  }
  ++skipped_;
  log_.warn("step skipped: the gradient norm is {} ({} skipped so far)", norm, skipped_);
  if (++in_a_row_ > limit_) {
    throw Error(ErrorCode::kNonFinite,
                fmt::format("{} steps in a row had a gradient that is not finite; lower optim.lr "
                            "or raise train.skip_limit",
                            in_a_row_));
  }
  return false;
}

}  // namespace tessera::train

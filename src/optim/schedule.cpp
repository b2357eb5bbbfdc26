// SPDX-License-Identifier: Apache-2.0
#include "tessera/optim/schedule.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "tessera/core/error.hpp"

namespace tessera::optim {

void WarmupCosine::validate() const {
  const auto require = [](bool ok, const std::string& message) {
    if (!ok) throw Error(ErrorCode::kConfig, message);
  };
  require(std::isfinite(peak) && peak > 0.0,
          fmt::format("optim.lr must be a positive number, not {}", peak));
  require(minimum >= 0.0 && minimum <= peak,
          fmt::format("optim.min_lr = {} must lie in [0, optim.lr = {}]", minimum, peak));
  require(total >= 1, fmt::format("train.steps must be at least 1, not {}", total));
  require(warmup >= 0 && warmup <= total,
          fmt::format("optim.warmup = {} must lie in [0, train.steps = {}]", warmup, total));
}

double WarmupCosine::at(std::int64_t update) const {
  if (update < warmup) {
    return peak * static_cast<double>(update + 1) / static_cast<double>(warmup);
  }
  if (update >= total) return minimum;
  const double done = static_cast<double>(update - warmup) / static_cast<double>(total - warmup);
  return minimum + 0.5 * (peak - minimum) * (1.0 + std::cos(std::numbers::pi * done));
}

}  // namespace tessera::optim

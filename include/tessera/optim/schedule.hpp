// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: pure functions of the update index (the first update is 0).
#pragma once

#include <cstdint>

namespace tessera::optim {

/// Linear warmup, then cosine decay (Loshchilov and Hutter, arXiv 1608.03983):
/// lr = peak (t + 1) / warmup for t < warmup; then min + (peak - min) (1 + cos(pi r)) / 2 with
/// r = (t - warmup) / (total - warmup), and min from the end on.
struct WarmupCosine {
  double peak = 1e-3;
  double minimum = 0.0;
  std::int64_t warmup = 0;
  std::int64_t total = 1;

  /// kConfig errors: negative or zero peak, warmup longer than the run, minimum above the peak.
  void validate() const;
  double at(std::int64_t update) const;
};

}  // namespace tessera::optim

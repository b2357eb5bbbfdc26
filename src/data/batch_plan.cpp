// SPDX-License-Identifier: Apache-2.0
#include "tessera/data/batch_plan.hpp"

#include <fmt/format.h>

#include "tessera/core/error.hpp"

namespace tessera::data {

void BatchPlan::check_enough(std::int64_t samples) const {
  if (micro_rows() <= samples) return;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("train.batch = {} sequences on each of {} rank(s) need {} samples, but the "
                  "text has only {}; use fewer ranks, a smaller batch or a longer text",
                  rows, ranks, micro_rows(), samples));
}

}  // namespace tessera::data

// SPDX-License-Identifier: Apache-2.0
// Which samples a rank sees. Global row g of step s is sample s * step_rows() + g; micro-batch a is
// the rows from first_row(a), dealt to the data ranks in order. So the samples of a step depend on
// the number of its rows only, not on how ranks and accumulation divide them.
#pragma once

#include <cstdint>

namespace tessera::data {

struct BatchPlan {
  std::int64_t rows = 1;  ///< of one rank's micro-batch
  std::int64_t ranks = 1;
  std::int64_t rank = 0;
  std::int64_t accumulation = 1;  ///< micro-batches per step

  /// Rows of a micro-batch over all ranks.
  std::int64_t micro_rows() const { return rows * ranks; }
  /// Rows of a step over all ranks.
  std::int64_t step_rows() const { return micro_rows() * accumulation; }
  /// The global row, in the step, with which micro-batch `a` begins on rank 0.
  std::int64_t first_row(std::int64_t a) const { return a * micro_rows(); }
  /// The first of this rank's `rows` samples of micro-batch `a`.
  std::int64_t first_sample(std::int64_t step, std::int64_t a) const {
    return step * step_rows() + first_row(a) + rank * rows;
  }
  /// kConfig error that names the numbers when a micro-batch has more rows than there are different
  /// samples.
  void check_enough(std::int64_t samples) const;
};

}  // namespace tessera::data

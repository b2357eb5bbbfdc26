// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <algorithm>
#include <numeric>

namespace tessera::comm {

void require_contiguous(const Tensor& tensor, const char* operation) {
  TESSERA_CHECK(tensor.defined() && tensor.is_contiguous(), "{}: tensors must be contiguous",
                operation);
}

std::vector<std::int64_t> counts_or_equal(std::span<const std::int64_t> counts, std::int64_t total,
                                          int size, const char* operation) {
  std::vector<std::int64_t> out(counts.begin(), counts.end());
  if (out.empty()) {
    TESSERA_CHECK(total % size == 0, "{}: {} elements do not divide among {} ranks; give counts",
                  operation, total, size);
    out.assign(static_cast<std::size_t>(size), total / size);
  }
  TESSERA_CHECK(static_cast<int>(out.size()) == size, "{}: {} counts for {} ranks", operation,
                out.size(), size);
  for (const std::int64_t count : out) {
    TESSERA_CHECK(count >= 0, "{}: a count is {}", operation, count);
  }
  const std::int64_t sum = std::accumulate(out.begin(), out.end(), std::int64_t{0});
  TESSERA_CHECK(sum == total, "{}: the counts add up to {} elements, but the tensor has {}",
                operation, sum, total);
  return out;
}

std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> starts(counts.size(), 0);
  for (std::size_t i = 1; i < counts.size(); ++i) starts[i] = starts[i - 1] + counts[i - 1];
  return starts;
}

std::int64_t largest(const std::vector<std::int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

void require_piece(const Tensor& piece, const Tensor& whole,
                   const std::vector<std::int64_t>& counts, int rank, const char* operation) {
  const std::int64_t count = counts[static_cast<std::size_t>(rank)];
  TESSERA_CHECK(piece.dtype() == whole.dtype() && piece.numel() == count,
                "{}: the piece of this rank has {} elements of {}, but its count is {} of {}",
                operation, piece.numel(), to_string(piece.dtype()), count,
                to_string(whole.dtype()));
}

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
// How the collectives cut tensors into one piece per rank.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tessera/core/tensor.hpp"

namespace tessera::comm {

/// Error{kInvalidArgument} that names the operation unless the tensor is contiguous.
void require_contiguous(const Tensor& tensor, const char* operation);

/// The given counts, or equal ones; checked against the number of ranks and elements.
std::vector<std::int64_t> counts_or_equal(std::span<const std::int64_t> counts, std::int64_t total,
                                          int size, const char* operation);

/// Where each rank's piece begins.
std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& counts);

std::int64_t largest(const std::vector<std::int64_t>& values);

/// First and past-the-last element of rank `rank`'s slice of `count` elements.
inline std::pair<std::int64_t, std::int64_t> slice(std::int64_t count, int size, int rank) {
  return {count * rank / size, count * (rank + 1) / size};
}

/// That `piece` has the dtype of `whole` and the elements that `counts` has for this rank.
void require_piece(const Tensor& piece, const Tensor& whole,
                   const std::vector<std::int64_t>& counts, int rank, const char* operation);

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
// Sums over dims, and sums of squares, over fixed blocks: the same bits for any thread count.
#pragma once

#include <span>

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

/// Elements of a summed row that are added in the dtype; blocks are added in f64.
inline constexpr std::int64_t kSumBlock = 4096;

struct SumArgs {
  TensorView x;       ///< [outer, reduced, inner], contiguous
  TensorView y;       ///< [outer, inner]
  TensorView blocks;  ///< [outer, ceil(reduced / kSumBlock)], f64: workspace; only for inner = 1
};
struct SquareSumArgs {
  TensorView x;     ///< [N], contiguous
  TensorView sums;  ///< [ceil(N / block)], f64: the sum of squares of each block
  std::int64_t block = 0;
};

template <DeviceType D>
void sum_kernel(const SumArgs& args, Stream& stream);
template <DeviceType D>
void square_sum_kernel(const SquareSumArgs& args, Stream& stream);

/// Sums over the dims listed (each in [0, rank)); they are dropped.
Tensor sum(const Tensor& x, std::span<const int> dims);
/// Sum over all elements, shape [].
Tensor sum(const Tensor& x);
/// x summed down to `shape`: the gradient of broadcasting `shape` to x's shape.
Tensor sum_to(const Tensor& x, const Shape& shape);
/// Sums of squares of the blocks [i block, (i+1) block) of x seen as one row, f64, shape [blocks].
Tensor square_sums(const Tensor& x, std::int64_t block);

}  // namespace tessera::ops

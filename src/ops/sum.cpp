// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/sum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

/// x [outer, reduced, inner] to y [outer, inner].
void run(const Tensor& x, const Tensor& y) {
  SumArgs args{x.view(), y.view(), {}};
  Tensor blocks;
  if (x.shape()[2] == 1) {
    const Shape shape{x.shape()[0], (x.shape()[1] + kSumBlock - 1) / kSumBlock};
    blocks = Tensor::empty(x.context(), shape, DType::kF64, MemoryCategory::kWorkspace);
    args.blocks = blocks.view();
  }
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { sum_kernel<D>(args, stream); });
}

}  // namespace

Tensor sum(const Tensor& x, std::span<const int> dims) {
  std::vector<int> order;
  std::vector<int> last;
  Shape kept;
  for (int d = 0; d < x.rank(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
      order.push_back(d);
      kept.push_back(x.shape()[d]);
    } else {
      last.push_back(d);
    }
  }
  if (last.size() != dims.size()) {
    throw Error(ErrorCode::kShape, fmt::format("sum over [{}]: not distinct dims of {}",
                                               fmt::join(dims, ", "), x.shape().to_string()));
  }
  Tensor y = Tensor::empty(x.context(), kept, x.dtype());
  if (y.numel() == 0) return y;
  const std::int64_t reduced = x.numel() / y.numel();
  if (reduced == 0) {
    fill(y, 0.0);
    return y;
  }
  // Adjacent dims are summed where they are; others go last.
  std::sort(last.begin(), last.end());
  const bool is_adjacent =
      last.empty() || last.back() - last.front() + 1 == static_cast<int>(last.size());
  if (is_adjacent) {
    const std::int64_t outer = last.empty() ? y.numel() : x.shape().numel(0, last.front());
    const std::int64_t inner = y.numel() / outer;
    run(contiguous(x).reshape({outer, reduced, inner}), y.reshape({outer, inner}));
    return y;
  }
  order.insert(order.end(), last.begin(), last.end());
  run(contiguous(x.permute(order)).reshape({y.numel(), reduced, 1}), y.reshape({y.numel(), 1}));
  return y;
}

Tensor sum(const Tensor& x) {
  Tensor y = Tensor::empty(x.context(), Shape{}, x.dtype());
  if (x.numel() == 0) {
    fill(y, 0.0);
  } else {
    run(contiguous(x).reshape({1, x.numel(), 1}), y.reshape({1, 1}));
  }
  return y;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  if (broadcast_shapes(x.shape(), shape) != x.shape()) {
    throw Error(ErrorCode::kShape, fmt::format("sum_to: {} is not a broadcast of {}",
                                               x.shape().to_string(), shape.to_string()));
  }
  const int lead = x.rank() - shape.rank();
  std::vector<int> dims;
  for (int d = 0; d < x.rank(); ++d) {
    if (d < lead || (shape[d - lead] == 1 && x.shape()[d] != 1)) dims.push_back(d);
  }
  return sum(x, dims).reshape(shape);
}

Tensor square_sums(const Tensor& x, std::int64_t block) {
  TESSERA_CHECK(block > 0, "square_sums: the block must be positive, not {}", block);
  Tensor sums = Tensor::empty(x.context(), {(x.numel() + block - 1) / block}, DType::kF64);
  if (x.numel() == 0) return sums;
  const Tensor dense = contiguous(x);
  const SquareSumArgs args{dense.reshape({x.numel()}).view(), sums.view(), block};
  Stream& stream = x.context().stream();
  on_device(x.device(), [&]<DeviceType D>() { square_sum_kernel<D>(args, stream); });
  return sums;
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/matmul.hpp"

#include <fmt/format.h>

#include <optional>

#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

struct Sizes {
  std::int64_t m, n, k;
  Shape lead;
};

Sizes checked_sizes(const Tensor& a, const Tensor& b, Transpose transpose_a,
                    Transpose transpose_b) {
  const auto reject = [&](const char* why) {
    throw Error(ErrorCode::kShape,
                fmt::format("matmul: {}{} times {}{}: {}", a.shape().to_string(),
                            transpose_a == Transpose::kYes ? "^T" : "", b.shape().to_string(),
                            transpose_b == Transpose::kYes ? "^T" : "", why));
  };
  if (a.dtype() != b.dtype()) {
    throw Error(ErrorCode::kDType, fmt::format("matmul: expected one dtype, got {} and {}",
                                               to_string(a.dtype()), to_string(b.dtype())));
  }
  if (a.rank() < 2 || b.rank() < 2) reject("both need at least two dims");
  const bool ta = transpose_a == Transpose::kYes;
  const bool tb = transpose_b == Transpose::kYes;
  Sizes sizes{a.shape().back(ta ? 0 : 1), b.shape().back(tb ? 1 : 0), a.shape().back(ta ? 1 : 0),
              a.shape().slice(0, a.rank() - 2)};
  if (sizes.k != b.shape().back(tb ? 0 : 1)) reject("the inner sizes differ");
  if (b.rank() > 2 && b.shape().slice(0, b.rank() - 2) != sizes.lead) {
    reject("the leading dims differ");
  }
  return sizes;
}

/// The one stride that walks dims [first, last) of x in row-major order, if there is one.
std::optional<std::int64_t> merged_stride(const Tensor& x, int first, int last) {
  std::int64_t stride = 0;
  std::int64_t expected = -1;
  for (int dim = last - 1; dim >= first; --dim) {
    if (x.shape()[dim] == 1) continue;
    if (expected < 0) {
      stride = x.strides()[dim];
    } else if (x.strides()[dim] != expected) {
      return std::nullopt;
    }
    expected = x.strides()[dim] * x.shape()[dim];
  }
  return stride;
}

/// x [..., rows, columns] as [batch, rows, columns] with contiguous rows, in place where its
/// strides allow it. `rows_from` is the first dim that counts as rows.
Tensor as_batch(const Tensor& x, int rows_from) {
  const int last = x.rank() - 1;
  const auto batch_stride = merged_stride(x, 0, rows_from);
  const auto row_stride = merged_stride(x, rows_from, last);
  const std::int64_t rows = x.shape().numel(rows_from, last);
  const std::int64_t columns = x.shape()[last];
  const bool has_dense_rows = x.strides()[last] == 1 || columns == 1;
  if (!batch_stride || !row_stride || !has_dense_rows || (rows > 1 && *row_stride < columns)) {
    if (x.is_contiguous()) return x.reshape({x.shape().numel(0, rows_from), rows, columns});
    return as_batch(contiguous(x), rows_from);
  }
  return Tensor(x.storage(), x.dtype(), {x.shape().numel(0, rows_from), rows, columns},
                {*batch_stride, *row_stride, 1}, x.offset());
}

void run(const Tensor& c, const Tensor& a, const Tensor& b, Transpose transpose_a,
         Transpose transpose_b, bool accumulates) {
  if (c.numel() == 0) return;
  Context& context = c.context();
  MatmulArgs args{a.view(), b.view(), c.view(), transpose_a, transpose_b, accumulates};
  args.is_batch_invariant = context.numerics() == Numerics::kLayoutInvariant;
  on_device(c.device(), [&]<DeviceType D>() {
    const std::size_t bytes = matmul_workspace_bytes<D>(args, context.stream());
    const Tensor workspace = Tensor::empty(context, {static_cast<std::int64_t>(bytes)}, DType::kU8,
                                           MemoryCategory::kWorkspace);
    args.workspace = workspace.raw();
    matmul_kernel<D>(args, context.stream());
  });
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b) {
  const Sizes sizes = checked_sizes(a, b, transpose_a, transpose_b);
  Shape shape = sizes.lead;
  shape.push_back(sizes.m);
  shape.push_back(sizes.n);
  Tensor c = Tensor::empty(a.context(), shape, a.dtype());
  matmul_into(c, a, b, transpose_a, transpose_b, false);
  return c;
}

void matmul_into(const Tensor& c, const Tensor& a, const Tensor& b, Transpose transpose_a,
                 Transpose transpose_b, bool accumulates) {
  const Sizes sizes = checked_sizes(a, b, transpose_a, transpose_b);
  Shape shape = sizes.lead;
  shape.push_back(sizes.m);
  shape.push_back(sizes.n);
  if (c.shape() != shape || !c.is_contiguous()) {
    throw Error(ErrorCode::kShape, fmt::format("matmul: the target must be a contiguous {}, not {}",
                                               shape.to_string(), c.shape().to_string()));
  }
  if (c.dtype() != a.dtype()) {
    throw Error(ErrorCode::kDType, fmt::format("matmul: the target is {} but the operands {}",
                                               to_string(c.dtype()), to_string(a.dtype())));
  }
  const std::int64_t batch = sizes.lead.numel();
  const Tensor right = as_batch(b, b.rank() - 2);
  if (b.rank() == 2 && transpose_a == Transpose::kNo) {
    // One b for all: the leading dims are rows.
    run(c.reshape({1, batch * sizes.m, sizes.n}), as_batch(a, 0), right, transpose_a, transpose_b,
        accumulates);
  } else {
    run(c.reshape({batch, sizes.m, sizes.n}), as_batch(a, a.rank() - 2),
        right.broadcast_to({batch, right.shape()[1], right.shape()[2]}), transpose_a, transpose_b,
        accumulates);
  }
  c.mark_changed();
}

}  // namespace tessera::ops

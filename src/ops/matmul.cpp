// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/matmul.hpp"

#include <fmt/format.h>

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

/// [batch, rows, columns] with contiguous rows; strided batches and rows are used in place.
Tensor as_batch(const Tensor& x) {
  if (x.rank() == 2) {
    const Tensor rows = x.strides()[1] == 1 || x.shape()[1] == 1 ? x : contiguous(x);
    return Tensor(rows.storage(), rows.dtype(), {1, rows.shape()[0], rows.shape()[1]},
                  {0, rows.strides()[0], 1}, rows.offset());
  }
  if (x.rank() == 3 && x.strides()[2] == 1) return x;
  return contiguous(x).reshape(
      {x.shape().numel(0, x.rank() - 2), x.shape().back(1), x.shape().back(0)});
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
  if (b.rank() == 2 && batch != 1 && transpose_a == Transpose::kNo) {
    // One b for all: the leading dims are rows.
    run(c.reshape({1, batch * sizes.m, sizes.n}),
        as_batch(contiguous(a).reshape({batch * sizes.m, sizes.k})), as_batch(b), transpose_a,
        transpose_b, accumulates);
  } else {
    TESSERA_CHECK(b.rank() > 2 || batch == 1, "matmul: a transposed {} needs a batched b",
                  a.shape().to_string());
    run(c.reshape({batch, sizes.m, sizes.n}), as_batch(a), as_batch(b), transpose_a, transpose_b,
        accumulates);
  }
  c.mark_changed();
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/embedding.hpp"

#include <fmt/format.h>

#include "check.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

void require_table(const char* op, const Tensor& table) {
  if (table.rank() != 2) {
    throw Error(ErrorCode::kShape,
                fmt::format("{}: the table must be [V, C], not {}", op, table.shape().to_string()));
  }
}

Tensor checked_indices(const Tensor& indices, std::int64_t vocabulary) {
  require_dtype("embedding", "indices", indices, DType::kI32);
  const Tensor flat = contiguous(indices).reshape({indices.numel()});
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const std::int32_t index = flat.data<std::int32_t>()[i];
    TESSERA_CHECK(index >= 0 && index < vocabulary,
                  "embedding: index {} at position {} is outside the table of {} rows", index, i,
                  vocabulary);
  }
  return flat;
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& indices) {
  require_table("embedding", table);
  const Tensor flat = checked_indices(indices, table.shape()[0]);
  Shape shape = indices.shape();
  shape.push_back(table.shape()[1]);
  Context& context = table.context();
  Tensor y = Tensor::empty(context, shape, table.dtype());
  if (y.numel() == 0) return y;
  const Tensor rows = contiguous(table);
  const EmbeddingArgs args{rows.view(), flat.view(),
                           y.reshape({flat.numel(), table.shape()[1]}).view()};
  on_device(table.device(), [&]<DeviceType D>() { embedding_kernel<D>(args, context.stream()); });
  return y;
}

void embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& indices) {
  constexpr const char* kOp = "embedding_backward";
  require_table(kOp, dtable);
  const Tensor flat = checked_indices(indices, dtable.shape()[0]);
  const std::int64_t width = dtable.shape()[1];
  Shape shape = indices.shape();
  shape.push_back(width);
  require_shape(kOp, "dy", dy, shape);
  require_dtype(kOp, "dy", dy, dtable.dtype());
  require_contiguous(kOp, "dtable", dtable);
  if (dy.numel() > 0) {
    const Tensor rows = contiguous(dy).reshape({flat.numel(), width});
    const EmbeddingBackwardArgs args{flat.view(), rows.view(), dtable.view()};
    Stream& stream = dtable.context().stream();
    on_device(dtable.device(), [&]<DeviceType D>() { embedding_backward_kernel<D>(args, stream); });
  }
  dtable.mark_changed();
}

}  // namespace tessera::ops

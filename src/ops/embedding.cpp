// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/embedding.hpp"

#include <fmt/format.h>

#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

Tensor checked_indices(const Tensor& indices, std::int64_t vocabulary) {
  if (indices.dtype() != DType::kI32) {
    throw Error(ErrorCode::kDType,
                fmt::format("embedding: indices must be i32, not {}", to_string(indices.dtype())));
  }
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
  if (table.rank() != 2) {
    throw Error(ErrorCode::kShape, fmt::format("embedding: the table must be [V, C], not {}",
                                               table.shape().to_string()));
  }
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
  const Tensor flat = checked_indices(indices, dtable.shape()[0]);
  const std::int64_t width = dtable.shape()[1];
  if (dy.numel() != flat.numel() * width || !dtable.is_contiguous()) {
    throw Error(
        ErrorCode::kShape,
        fmt::format("embedding_backward: dy {} does not belong to indices {} and a contiguous "
                    "table {}",
                    dy.shape().to_string(), indices.shape().to_string(),
                    dtable.shape().to_string()));
  }
  if (dy.numel() > 0) {
    const Tensor rows = contiguous(dy).reshape({flat.numel(), width});
    const EmbeddingBackwardArgs args{flat.view(), rows.view(), dtable.view()};
    Stream& stream = dtable.context().stream();
    on_device(dtable.device(), [&]<DeviceType D>() { embedding_backward_kernel<D>(args, stream); });
  }
  dtable.mark_changed();
}

}  // namespace tessera::ops

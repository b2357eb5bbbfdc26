// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

struct EmbeddingArgs {
  TensorView table;    ///< [V, C], contiguous
  TensorView indices;  ///< [N], i32
  TensorView y;        ///< [N, C]
};
struct EmbeddingBackwardArgs {
  TensorView indices;  ///< [N], i32
  TensorView dy;       ///< [N, C]
  TensorView dtable;   ///< [V, C], added to
};

template <DeviceType D>
void embedding_kernel(const EmbeddingArgs& args, Stream& stream);
/// Each row sums its tokens in their order: the same bits for any thread count.
template <DeviceType D>
void embedding_backward_kernel(const EmbeddingBackwardArgs& args, Stream& stream);

/// indices [...] i32, result [..., C]. An index outside [0, V) is an error that names it.
Tensor embedding(const Tensor& table, const Tensor& indices);
/// dtable [V, C] is added to.
void embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& indices);

}  // namespace tessera::ops

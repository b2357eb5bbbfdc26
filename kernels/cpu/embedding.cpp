// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/embedding.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

constexpr std::int64_t kColumns = 64;

template <typename T>
[[gnu::always_inline]] inline void add_stripe(const EmbeddingBackwardArgs& args, std::int64_t first,
                                              std::int64_t count) {
  const std::int64_t width = args.dtable.shape[1];
  const std::int32_t* indices = args.indices.as<std::int32_t>();
  for (std::int64_t n = 0; n < args.indices.numel(); ++n) {
    const T* from = args.dy.as<T>() + n * width + first;
    T* to = args.dtable.as<T>() + indices[n] * width + first;
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
  }
}

TESSERA_MULTIVERSION void stripe_f32(const EmbeddingBackwardArgs& args, std::int64_t first,
                                     std::int64_t count) {
  add_stripe<float>(args, first, count);
}
TESSERA_MULTIVERSION void stripe_f64(const EmbeddingBackwardArgs& args, std::int64_t first,
                                     std::int64_t count) {
  add_stripe<double>(args, first, count);
}

}  // namespace

template <>
void embedding_kernel<DeviceType::kCpu>(const EmbeddingArgs& args, Stream& stream) {
  const std::size_t row = static_cast<std::size_t>(args.table.shape[1]) * size_of(args.table.dtype);
  const std::int32_t* indices = args.indices.as<std::int32_t>();
  parallel_for(stream, args.indices.numel(), 64, [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t n = a; n < b; ++n) {
      std::memcpy(args.y.as<std::byte>() + static_cast<std::size_t>(n) * row,
                  args.table.as<std::byte>() + static_cast<std::size_t>(indices[n]) * row, row);
    }
  });
}

/// A thread owns a stripe of columns and adds all tokens to it in their order: no sorting, and one
/// token that fills the batch costs no more than any other.
template <>
void embedding_backward_kernel<DeviceType::kCpu>(const EmbeddingBackwardArgs& args,
                                                 Stream& stream) {
  const std::int64_t width = args.dtable.shape[1];
  kernels::visit_f64_f32("embedding", args.dy.dtype, [&]<typename T>() {
    parallel_for(stream, (width + kColumns - 1) / kColumns, 1, [&](std::int64_t a, std::int64_t b) {
      const std::int64_t first = a * kColumns;
      const std::int64_t count = std::min(b * kColumns, width) - first;
      if constexpr (std::is_same_v<T, float>) {
        stripe_f32(args, first, count);
      } else {
        stripe_f64(args, first, count);
      }
    });
  });
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
#include "reduce.hpp"

#include <algorithm>
#include <type_traits>

#include "tessera/core/low_precision.hpp"

namespace tessera::comm {
namespace {

constexpr std::int64_t kBlock = 512;

template <typename T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

/// Sums of integers wrap around; the extremes keep a NaN.
template <ReduceOp op, typename W>
W combine(W a, W b) {
  if constexpr (op == ReduceOp::kSum && std::is_integral_v<W>) {
    using U = std::make_unsigned_t<W>;
    return static_cast<W>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  }
  if constexpr (op == ReduceOp::kSum) return static_cast<W>(a + b);
  if constexpr (op == ReduceOp::kMax) return b > a || b != b ? b : a;
  if constexpr (op == ReduceOp::kMin) return b < a || b != b ? b : a;
}

template <typename T, ReduceOp op>
void reduce(T* out, std::span<const void* const> inputs, std::int64_t count) {
  using W = Wide<T>;
  W sums[kBlock];
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t n = std::min(kBlock, count - first);
    const T* begin = static_cast<const T*>(inputs[0]) + first;
    for (std::int64_t i = 0; i < n; ++i) sums[i] = static_cast<W>(begin[i]);
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      const T* next = static_cast<const T*>(inputs[r]) + first;
      for (std::int64_t i = 0; i < n; ++i) sums[i] = combine<op>(sums[i], static_cast<W>(next[i]));
    }
    for (std::int64_t i = 0; i < n; ++i) out[first + i] = static_cast<T>(sums[i]);
  }
}

template <typename T>
void reduce_as(ReduceOp op, void* out, std::span<const void* const> inputs, std::int64_t count) {
  T* to = static_cast<T*>(out);
  switch (op) {
    case ReduceOp::kSum:
      return reduce<T, ReduceOp::kSum>(to, inputs, count);
    case ReduceOp::kMax:
      return reduce<T, ReduceOp::kMax>(to, inputs, count);
    case ReduceOp::kMin:
      return reduce<T, ReduceOp::kMin>(to, inputs, count);
  }
}

}  // namespace

void reduce_pieces(DType dtype, ReduceOp op, void* out, std::span<const void* const> inputs,
                   std::int64_t count) {
  switch (dtype) {
    case DType::kF64:
      return reduce_as<double>(op, out, inputs, count);
    case DType::kF32:
      return reduce_as<float>(op, out, inputs, count);
    case DType::kF16:
      return reduce_as<f16>(op, out, inputs, count);
    case DType::kBF16:
      return reduce_as<bf16>(op, out, inputs, count);
    case DType::kF8E4M3:
      return reduce_as<f8e4m3>(op, out, inputs, count);
    case DType::kF8E5M2:
      return reduce_as<f8e5m2>(op, out, inputs, count);
    case DType::kI64:
      return reduce_as<std::int64_t>(op, out, inputs, count);
    case DType::kI32:
      return reduce_as<std::int32_t>(op, out, inputs, count);
    case DType::kU8:
      return reduce_as<std::uint8_t>(op, out, inputs, count);
  }
}

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
// Dtype dispatch inside CPU kernels, and the attribute that compiles a plain loop for several ISAs.
#pragma once

#include <fmt/format.h>

#include <type_traits>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/low_precision.hpp"

// The loop is compiled for the baseline, AVX2 and AVX-512; the machine's best is chosen when
// loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TESSERA_MULTIVERSION \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TESSERA_MULTIVERSION
#endif

namespace tessera::kernels {

/// Asks for the cache lines of x[0, count). Memory that is not there does no harm.
template <typename T>
[[gnu::always_inline]] inline void prefetch_run(const T* x, std::int64_t count) {
  constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(T));
  for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(x + i);
}

/// Calls f.operator()<T>() for f64 or f32; another dtype is an error that names the op.
template <typename F>
void visit_f64_f32(const char* op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64:
      return f.template operator()<double>();
    case DType::kF32:
      return f.template operator()<float>();
    default:
      throw Error(ErrorCode::kDType,
                  fmt::format("{}: f64 and f32 are computed, not {}", op, to_string(dtype)));
  }
}

/// The type that a kernel computes in: f32 for the low floats.
template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, f16>, float, T>;

/// Calls f.operator()<T>() for f64, f32, bf16 or f16; another dtype is an error that names the op.
template <typename F>
void visit_computed(const char* op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16:
      return f.template operator()<bf16>();
    case DType::kF16:
      return f.template operator()<f16>();
    default:
      return visit_f64_f32(op, dtype, f);
  }
}

/// Calls f.operator()<T>() for any dtype.
template <typename F>
void visit_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64:
      return f.template operator()<double>();
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF16:
      return f.template operator()<f16>();
    case DType::kBF16:
      return f.template operator()<bf16>();
    case DType::kF8E4M3:
      return f.template operator()<f8e4m3>();
    case DType::kF8E5M2:
      return f.template operator()<f8e5m2>();
    case DType::kI64:
      return f.template operator()<std::int64_t>();
    case DType::kI32:
      return f.template operator()<std::int32_t>();
    case DType::kU8:
      return f.template operator()<std::uint8_t>();
  }
}

}  // namespace tessera::kernels

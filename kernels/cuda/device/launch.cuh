// SPDX-License-Identifier: Apache-2.0
// The one way to start a kernel: typed, and checked. And what host code of kernels shares.
#pragma once

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/stream.hpp"

namespace tessera::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(ErrorCode::kInternal, fmt::format("{}: {} ({})", what, cudaGetErrorString(status),
                                                cudaGetErrorName(status)));
}

/// Streams of their own come with the device layer; until then work goes to the legacy stream.
inline cudaStream_t native(Stream&) { return nullptr; }

/// Starts `kernel` with arguments converted to its parameters' types.
template <typename... P, typename... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes, Stream& stream,
            A&&... args) {
  kernel<<<grid, block, shared_bytes, native(stream)>>>(static_cast<P>(std::forward<A>(args))...);
  check(cudaGetLastError(), "kernel launch");
}

/// Calls f.operator()<T>() for f64 or f32; another dtype is an error that names the op.
template <typename F>
void visit_f64_f32(const char* op, DType dtype, F&& f) {
  if (dtype == DType::kF64) return f.template operator()<double>();
  if (dtype == DType::kF32) return f.template operator()<float>();
  throw Error(ErrorCode::kDType,
              fmt::format("{}: f64 and f32 are computed, not {}", op, to_string(dtype)));
}

inline unsigned blocks_for(std::int64_t count, std::int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace tessera::cuda

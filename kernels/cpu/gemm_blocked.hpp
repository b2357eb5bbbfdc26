// SPDX-License-Identifier: Apache-2.0
// Our own GEMM: packed blocks and register tiles (Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication", TOMS 34, 2008). K is summed in fixed blocks of
// kGemmInner, in order. An element's bits depend on its row of A, its column of B and K only: not
// on M, N or the thread count, nor on the instruction set among those with fused multiply-add.
#pragma once

#include <cstdint>

#include "tessera/core/stream.hpp"

namespace tessera::kernels {

/// A matrix by its strides: element (i, j) is at data[i * row + j * column]; one stride is 1.
template <typename T>
struct Strided {
  const T* data;
  std::int64_t row;
  std::int64_t column;
};

inline constexpr std::int64_t kGemmInner = 256;

/// c [m, n] (row stride ldc) = a [m, k] b [k, n], plus c when `accumulates`. `workspace`:
/// gemm_workspace.
void gemm_blocked(std::int64_t m, std::int64_t n, std::int64_t k, Strided<float> a,
                  Strided<float> b, float* c, std::int64_t ldc, bool accumulates, float* workspace,
                  const Stream& stream);
void gemm_blocked(std::int64_t m, std::int64_t n, std::int64_t k, Strided<double> a,
                  Strided<double> b, double* c, std::int64_t ldc, bool accumulates,
                  double* workspace, const Stream& stream);

/// Elements of workspace: a packed block of A and of B per thread.
std::int64_t gemm_workspace(std::int64_t m, std::int64_t n, std::int64_t k, int threads);

}  // namespace tessera::kernels

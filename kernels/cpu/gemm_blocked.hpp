// SPDX-License-Identifier: Apache-2.0
// Our own GEMM: blocked and packed, every element of C summed over K in order with fused
// multiply-adds. An element's bits depend on its row of A, its column of B and K only: not on M, N,
// the thread count or the instruction set.
#pragma once

#include <cstdint>

#include "tessera/core/stream.hpp"

namespace tessera::kernels {

/// A matrix by its strides: element (i, j) is at data[i * row + j * column].
template <typename T>
struct Strided {
  const T* data;
  std::int64_t row;
  std::int64_t column;
};

/// c [m, n] (row stride ldc) = a [m, k] b [k, n], plus c when `accumulates`. `workspace`:
/// gemm_workspace.
void gemm_blocked(std::int64_t m, std::int64_t n, std::int64_t k, Strided<float> a,
                  Strided<float> b, float* c, std::int64_t ldc, bool accumulates, float* workspace,
                  const Stream& stream);
void gemm_blocked(std::int64_t m, std::int64_t n, std::int64_t k, Strided<double> a,
                  Strided<double> b, double* c, std::int64_t ldc, bool accumulates,
                  double* workspace, const Stream& stream);

/// Elements of workspace: packed B, and a packed strip of A per thread.
std::int64_t gemm_workspace(std::int64_t n, std::int64_t k, int threads);

}  // namespace tessera::kernels

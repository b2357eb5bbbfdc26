// SPDX-License-Identifier: Apache-2.0
// The GEMM seam. C = op(A) op(B) [+ C] over row-major matrices, f64 and f32, batched over equal
// leading dims. CPU: oneDNN for f32 (deterministic per shape and thread count), our own blocked
// Highway kernel for f64, and for both in layout-invariant mode (fixed order over K, the same bits
// for every M and N).
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

enum class Transpose { kNo, kYes };

struct MatmulArgs {
  TensorView a;  ///< [batch, M, K], or [batch, K, M] when transpose_a; rows contiguous
  TensorView b;  ///< [batch, K, N], or [batch, N, K] when transpose_b; rows contiguous
  TensorView c;  ///< [batch, M, N], rows contiguous
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  bool accumulates = false;  ///< C += instead of C =
  bool is_batch_invariant = false;
  void* workspace = nullptr;  ///< matmul_workspace_bytes(args), 64-byte aligned
};

/// K.
inline std::int64_t inner_size(const MatmulArgs& args) {
  return args.a.shape.back(args.transpose_a == Transpose::kYes ? 1 : 0);
}

template <DeviceType D>
std::size_t matmul_workspace_bytes(const MatmulArgs& args, const Stream& stream);
template <DeviceType D>
void matmul_kernel(const MatmulArgs& args, Stream& stream);

/// a [..., M, K] times b [K, N], or equal leading dims on both; transposes swap the last two dims
/// of an operand. Result [..., M, N] of the operands' dtype. K = 0 gives zeros. Strided operands
/// whose rows are contiguous are used in place, others are copied. kShape and kDType errors.
Tensor matmul(const Tensor& a, const Tensor& b, Transpose transpose_a = Transpose::kNo,
              Transpose transpose_b = Transpose::kNo);
/// The same into `c`: overwritten, or added to when `accumulates`. `c` must be contiguous.
void matmul_into(const Tensor& c, const Tensor& a, const Tensor& b, Transpose transpose_a,
                 Transpose transpose_b, bool accumulates);

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// cuBLASLt works on column-major matrices: a row-major C = A B is there C^T = B^T A^T, so that the
// operands change places and their transposes stay as they are. f32 is computed in f32, not TF32.
#include <cublasLt.h>

#include <algorithm>
#include <memory>

#include "kernels/cuda/device/launch.cuh"
#include "tessera/ops/matmul.hpp"

namespace tessera::ops {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::kInternal,
              fmt::format("matmul: {} failed: {}", what, cublasLtGetStatusString(status)));
}

/// Owns a descriptor of cuBLASLt.
template <typename T, cublasStatus_t (*kDestroy)(T)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (value_ != nullptr) kDestroy(value_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T* out() { return &value_; }
  T get() const { return value_; }

 private:
  T value_ = nullptr;
};
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// A batch of row-major matrices, as the column-major ones of their transposes.
class Layout {
 public:
  Layout(const TensorView& x, cudaDataType_t type) {
    const std::int64_t leading = std::max(x.strides[1], x.shape[2]);
    check(cublasLtMatrixLayoutCreate(layout_.out(), type, static_cast<std::uint64_t>(x.shape[2]),
                                     static_cast<std::uint64_t>(x.shape[1]), leading),
          "cublasLtMatrixLayoutCreate");
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(x.shape[0]));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, x.strides[0]);
  }
  cublasLtMatrixLayout_t get() const { return layout_.get(); }

 private:
  template <typename T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, T value) {
    check(cublasLtMatrixLayoutSetAttribute(layout_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatrixLayoutSetAttribute");
  }
  Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> layout_;
};

cublasLtHandle_t handle_of(Stream& stream) {
  if (stream.libraries() == nullptr) {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "cublasLtCreate");
    stream.libraries() = std::shared_ptr<void>(
        handle, [](void* p) { cublasLtDestroy(static_cast<cublasLtHandle_t>(p)); });
  }
  return static_cast<cublasLtHandle_t>(stream.libraries().get());
}

void set_transpose(const Operation& operation, cublasLtMatmulDescAttributes_t which,
                   Transpose transpose) {
  const cublasOperation_t value = transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(operation.get(), which, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}

template <typename T>
void multiply(const MatmulArgs& args, Stream& stream) {
  const bool is_f64 = sizeof(T) == 8;
  const cudaDataType_t type = is_f64 ? CUDA_R_64F : CUDA_R_32F;
  Operation operation;
  check(cublasLtMatmulDescCreate(operation.out(), is_f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 type),
        "cublasLtMatmulDescCreate");
  set_transpose(operation, CUBLASLT_MATMUL_DESC_TRANSA, args.transpose_b);
  set_transpose(operation, CUBLASLT_MATMUL_DESC_TRANSB, args.transpose_a);
  const Layout a(args.a, type);
  const Layout b(args.b, type);
  const Layout c(args.c, type);
  Preference preference;
  check(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(),
                                             CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                             sizeof(kWorkspace)),
        "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasLtHandle_t handle = handle_of(stream);
  check(cublasLtMatmulAlgoGetHeuristic(handle, operation.get(), b.get(), a.get(), c.get(), c.get(),
                                       preference.get(), 1, &best, &found),
        "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) throw Error(ErrorCode::kInternal, "matmul: cuBLASLt knows no algorithm");
  const T one = 1;
  const T beta = args.accumulates ? T{1} : T{0};
  check(cublasLtMatmul(handle, operation.get(), &one, args.b.data, b.get(), args.a.data, a.get(),
                       &beta, args.c.data, c.get(), args.c.data, c.get(), &best.algo,
                       args.workspace, kWorkspace, cuda::native(stream)),
        "cublasLtMatmul");
}

}  // namespace

template <>
std::size_t matmul_workspace_bytes<DeviceType::kCuda>(const MatmulArgs& args, const Stream&) {
  return inner_size(args) == 0 ? 0 : kWorkspace;
}

template <>
void matmul_kernel<DeviceType::kCuda>(const MatmulArgs& args, Stream& stream) {
  if (args.is_batch_invariant) {
    throw Error(ErrorCode::kUnsupported, "matmul: no batch-invariant kernel on CUDA yet");
  }
  if (inner_size(args) == 0) {  // an empty sum
    if (args.accumulates) return;
    const std::size_t bytes =
        static_cast<std::size_t>(args.c.numel()) * size_of(args.c.dtype);  // c is contiguous
    cuda::check(cudaMemsetAsync(args.c.data, 0, bytes, cuda::native(stream)), "cudaMemsetAsync");
    return;
  }
  cuda::visit_f64_f32("matmul", args.c.dtype, [&]<typename T>() { multiply<T>(args, stream); });
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// f32 goes to oneDNN unless the batch-invariant mode asks for our own kernel; f64 is always ours.
#include "tessera/ops/matmul.hpp"

#include <dnnl.h>

#include <algorithm>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "kernels/cpu/gemm_blocked.hpp"
#include "kernels/cpu/visit.hpp"

namespace tessera::ops {
namespace {

bool uses_onednn(const MatmulArgs& args) {
  return args.c.dtype == DType::kF32 && !args.is_batch_invariant && inner_size(args) > 0;
}

/// OpenMP's thread count is per thread; the stream's count holds while oneDNN runs.
class ThreadScope {
 public:
  explicit ThreadScope([[maybe_unused]] int threads) {
#ifdef _OPENMP
    previous_ = omp_get_max_threads();
    if (previous_ != threads) omp_set_num_threads(threads);
#endif
  }
  ~ThreadScope() {
#ifdef _OPENMP
    omp_set_num_threads(previous_);
#endif
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  [[maybe_unused]] int previous_ = 1;
};

/// Row stride of a matrix; oneDNN wants at least the row's length even for a single row.
std::int64_t leading(const TensorView& x) { return std::max(x.strides[1], x.shape[2]); }

template <typename T>
kernels::Strided<T> strided(const TensorView& x, std::int64_t batch, Transpose transpose) {
  const T* data = x.as<T>() + batch * x.strides[0];
  if (transpose == Transpose::kYes) return {data, 1, x.strides[1]};
  return {data, x.strides[1], 1};
}

void sgemm(const MatmulArgs& args, std::int64_t batch) {
  const dnnl_status_t status =
      dnnl_sgemm(args.transpose_a == Transpose::kYes ? 'T' : 'N',
                 args.transpose_b == Transpose::kYes ? 'T' : 'N', args.c.shape[1], args.c.shape[2],
                 inner_size(args), 1.0F, args.a.as<float>() + batch * args.a.strides[0],
                 leading(args.a), args.b.as<float>() + batch * args.b.strides[0], leading(args.b),
                 args.accumulates ? 1.0F : 0.0F, args.c.as<float>() + batch * args.c.strides[0],
                 args.c.shape[2]);
  if (status != dnnl_success) {
    throw Error(ErrorCode::kInternal,
                fmt::format("matmul: oneDNN refused [{}, {}] (K = {}), status {}", args.c.shape[1],
                            args.c.shape[2], inner_size(args), static_cast<int>(status)));
  }
}

}  // namespace

template <>
std::size_t matmul_workspace_bytes<DeviceType::kCpu>(const MatmulArgs& args, const Stream& stream) {
  if (uses_onednn(args)) return 0;
  return static_cast<std::size_t>(kernels::gemm_workspace(args.c.shape[1], args.c.shape[2],
                                                          inner_size(args), stream.threads())) *
         size_of(args.c.dtype);
}

template <>
void matmul_kernel<DeviceType::kCpu>(const MatmulArgs& args, Stream& stream) {
  const std::int64_t batches = args.c.shape[0];
  if (uses_onednn(args)) {
    const ThreadScope threads(stream.threads());
    for (std::int64_t batch = 0; batch < batches; ++batch) sgemm(args, batch);
    return;
  }
  kernels::visit_f64_f32("matmul", args.c.dtype, [&]<typename T>() {
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      kernels::gemm_blocked(args.c.shape[1], args.c.shape[2], inner_size(args),
                            strided<T>(args.a, batch, args.transpose_a),
                            strided<T>(args.b, batch, args.transpose_b),
                            args.c.as<T>() + batch * args.c.strides[0], args.c.strides[1],
                            args.accumulates, static_cast<T*>(args.workspace), stream);
    }
  });
}

}  // namespace tessera::ops

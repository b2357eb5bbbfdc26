// SPDX-License-Identifier: Apache-2.0
// A block per row; weight gradients with a thread per column, rows in order: no atomics, the same
// bits every time.
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "tessera/ops/layer_norm.hpp"

namespace tessera::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 128;  ///< threads of a block of the weight gradient

template <typename T>
__global__ void forward(const T* x, const T* w, const T* b, T* y, T* mean, T* rstd,
                        std::int64_t width, T eps) {
  const std::int64_t row = blockIdx.x;
  const T* const in = x + row * width;
  T sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) sum += in[i];
  const T m = cuda::block_sum<kThreads>(sum) / static_cast<T>(width);
  T square = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) square += (in[i] - m) * (in[i] - m);
  const T variance = cuda::block_sum<kThreads>(square) / static_cast<T>(width);
  const T r = T{1} / sqrt(variance + eps);
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    y[row * width + i] = (in[i] - m) * r * w[i] + b[i];
  }
  if (threadIdx.x == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
}

/// dx = rstd (dn - mean(dn) - n mean(dn n)), with n = (x - mean) rstd and dn = dy w.
template <typename T>
__global__ void backward(const T* x, const T* w, const T* mean, const T* rstd, const T* dy, T* dx,
                         std::int64_t width) {
  const std::int64_t row = blockIdx.x;
  const T* const in = x + row * width;
  const T* const grad = dy + row * width;
  const T m = mean[row];
  const T r = rstd[row];
  T sum_dn = 0;
  T sum_dn_n = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    const T dn = grad[i] * w[i];
    sum_dn += dn;
    sum_dn_n += dn * ((in[i] - m) * r);
  }
  const T mean_dn = cuda::block_sum<kThreads>(sum_dn) / static_cast<T>(width);
  const T mean_dn_n = cuda::block_sum<kThreads>(sum_dn_n) / static_cast<T>(width);
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    dx[row * width + i] = r * (grad[i] * w[i] - mean_dn - (in[i] - m) * r * mean_dn_n);
  }
}

template <typename T>
__global__ void weight_backward(const T* x, const T* mean, const T* rstd, const T* dy, T* dweight,
                                T* dbias, std::int64_t rows, std::int64_t width) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  if (column >= width) return;
  T dw = 0;
  T db = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const T grad = dy[row * width + column];
    dw += grad * ((x[row * width + column] - mean[row]) * rstd[row]);
    db += grad;
  }
  dweight[column] += dw;
  dbias[column] += db;
}

}  // namespace

template <>
void layer_norm_kernel<DeviceType::kCuda>(const LayerNormArgs& args, Stream& stream) {
  const std::int64_t width = args.x.shape[1];
  cuda::visit_f64_f32("layer_norm", args.x.dtype, [&]<typename T>() {
    cuda::launch(forward<T>, static_cast<unsigned>(args.x.shape[0]), kThreads, 0, stream,
                 args.x.as<T>(), args.weight.as<T>(), args.bias.as<T>(), args.y.as<T>(),
                 args.mean.as<T>(), args.rstd.as<T>(), width, args.eps);
  });
}

template <>
void layer_norm_backward_kernel<DeviceType::kCuda>(const LayerNormBackwardArgs& args,
                                                   Stream& stream) {
  const std::int64_t width = args.x.shape[1];
  cuda::visit_f64_f32("layer_norm", args.x.dtype, [&]<typename T>() {
    cuda::launch(backward<T>, static_cast<unsigned>(args.x.shape[0]), kThreads, 0, stream,
                 args.x.as<T>(), args.weight.as<T>(), args.mean.as<T>(), args.rstd.as<T>(),
                 args.dy.as<T>(), args.dx.as<T>(), width);
  });
}

template <>
void layer_norm_weight_backward_kernel<DeviceType::kCuda>(const LayerNormWeightBackwardArgs& args,
                                                          Stream& stream) {
  const std::int64_t width = args.x.shape[1];
  cuda::visit_f64_f32("layer_norm", args.x.dtype, [&]<typename T>() {
    cuda::launch(weight_backward<T>, cuda::blocks_for(width, kColumns), kColumns, 0, stream,
                 args.x.as<T>(), args.mean.as<T>(), args.rstd.as<T>(), args.dy.as<T>(),
                 args.dweight.as<T>(), args.dbias.as<T>(), args.x.shape[0], width);
  });
}

}  // namespace tessera::ops

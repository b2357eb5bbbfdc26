// SPDX-License-Identifier: Apache-2.0
// Many tensors per launch: their addresses travel in the kernel's parameters, blockIdx.y says
// which.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/device/launch.cuh"
#include "tessera/ops/adamw.hpp"

namespace tessera::ops {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kTensors = 64;  ///< per launch; parameters of a kernel may take 4 KiB

template <typename T>
struct Batch {
  T* parameter[kTensors];
  const T* gradient[kTensors];
  T* m[kTensors];
  T* v[kTensors];
  std::int64_t count[kTensors];
  T decay[kTensors];  ///< 1 - lr weight_decay
};

template <typename T>
struct Constants {
  T beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, root_correction, eps, scale;
};

template <typename T>
__global__ void update(Batch<T> batch, Constants<T> c) {
  const unsigned t = blockIdx.y;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < batch.count[t]; i += stride) {
    const T g = c.scale * batch.gradient[t][i];
    const T m = c.beta1 * batch.m[t][i] + c.one_minus_beta1 * g;
    const T v = c.beta2 * batch.v[t][i] + c.one_minus_beta2 * g * g;
    const T root = sqrt(v) * c.root_correction + c.eps;
    batch.parameter[t][i] = batch.parameter[t][i] * batch.decay[t] - c.step_size * (m / root);
    batch.m[t][i] = m;
    batch.v[t][i] = v;
  }
}

template <typename T>
void update_all(const AdamWArgs& args, std::span<const AdamWTensor> tensors, Stream& stream) {
  const auto t = static_cast<double>(args.step);
  const Constants<T> constants{static_cast<T>(args.beta1),
                               static_cast<T>(1.0 - args.beta1),
                               static_cast<T>(args.beta2),
                               static_cast<T>(1.0 - args.beta2),
                               static_cast<T>(args.lr / (1.0 - std::pow(args.beta1, t))),
                               static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(args.beta2, t))),
                               static_cast<T>(args.eps),
                               static_cast<T>(args.grad_scale)};
  for (std::size_t first = 0; first < tensors.size(); first += kTensors) {
    const std::size_t count = std::min(kTensors, tensors.size() - first);
    Batch<T> batch{};
    std::int64_t most = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const AdamWTensor& tensor = tensors[first + i];
      batch.parameter[i] = tensor.parameter.as<T>();
      batch.gradient[i] = tensor.gradient.as<T>();
      batch.m[i] = tensor.m.as<T>();
      batch.v[i] = tensor.v.as<T>();
      batch.count[i] = tensor.parameter.numel();
      batch.decay[i] = static_cast<T>(1.0 - args.lr * tensor.weight_decay);
      most = std::max(most, batch.count[i]);
    }
    if (most == 0) continue;
    const unsigned blocks = std::min(cuda::blocks_for(most, kThreads * 4), 1024U);
    cuda::launch(update<T>, dim3(blocks, static_cast<unsigned>(count)), kThreads, 0, stream, batch,
                 constants);
  }
}

}  // namespace

template <>
void adamw_kernel<DeviceType::kCuda>(const AdamWArgs& args, Stream& stream) {
  // Runs of one dtype.
  for (std::size_t first = 0; first < args.tensors.size();) {
    const DType dtype = args.tensors[first].parameter.dtype;
    std::size_t last = first;
    while (last < args.tensors.size() && args.tensors[last].parameter.dtype == dtype) ++last;
    cuda::visit_f64_f32("adamw", dtype, [&]<typename T>() {
      update_all<T>(args, args.tensors.subspan(first, last - first), stream);
    });
    first = last;
  }
}

}  // namespace tessera::ops

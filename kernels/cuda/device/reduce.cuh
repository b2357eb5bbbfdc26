// SPDX-License-Identifier: Apache-2.0
// Sums over a warp and a block in a fixed order.
#pragma once

namespace tessera::cuda {

inline constexpr int kWarp = 32;

template <typename T>
__device__ inline T warp_sum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  return value;
}

/// The sum over all threads of a block of kThreads, on every thread.
template <int kThreads, typename T>
__device__ inline T block_sum(T value) {
  static_assert(kThreads % kWarp == 0 && kThreads <= 1024);
  __shared__ T parts[kThreads / kWarp];
  value = warp_sum(value);
  __syncthreads();  // the parts of a sum before are read
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = value;
  __syncthreads();
  T sum = 0;
  for (int i = 0; i < kThreads / kWarp; ++i) sum += parts[i];
  return sum;
}

}  // namespace tessera::cuda

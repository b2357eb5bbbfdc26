// SPDX-License-Identifier: Apache-2.0
// Rows of the last dim have consecutive global indices, so their random words come in whole Philox
// blocks, 16 of them side by side.
#include "tessera/ops/dropout.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

constexpr int kBlocks = 16;
constexpr int kWords = 4 * kBlocks;

/// Words of the blocks [first, first + kBlocks): the same as random_bits.
TESSERA_MULTIVERSION void philox_words(std::uint64_t key, std::uint64_t first,
                                       std::uint32_t* words) {
  std::uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks] = {}, c3[kBlocks] = {};
  for (int j = 0; j < kBlocks; ++j) {
    const std::uint64_t number = first + static_cast<std::uint64_t>(j);
    c0[j] = static_cast<std::uint32_t>(number);
    c1[j] = static_cast<std::uint32_t>(number >> 32);
  }
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int j = 0; j < kBlocks; ++j) {
      const std::uint64_t a = std::uint64_t{0xD2511F53U} * c0[j];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * c2[j];
      const std::uint32_t n0 = static_cast<std::uint32_t>(b >> 32) ^ c1[j] ^ k0;
      const std::uint32_t n2 = static_cast<std::uint32_t>(a >> 32) ^ c3[j] ^ k1;
      c0[j] = n0;
      c1[j] = static_cast<std::uint32_t>(b);
      c2[j] = n2;
      c3[j] = static_cast<std::uint32_t>(a);
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  for (int j = 0; j < kBlocks; ++j) {
    words[4 * j] = c0[j];
    words[4 * j + 1] = c1[j];
    words[4 * j + 2] = c2[j];
    words[4 * j + 3] = c3[j];
  }
}

template <typename T>
void drop_row(const T* x, T* y, std::int64_t count, std::uint64_t index, RandomKey key,
              std::uint32_t threshold, T scale) {
  std::uint32_t words[kWords];
  for (std::int64_t i = 0; i < count;) {
    const std::uint64_t g = index + static_cast<std::uint64_t>(i);
    philox_words(key.value, g / 4, words);
    const auto skip = static_cast<std::int64_t>(g % 4);
    const std::int64_t take = std::min(count - i, kWords - skip);
    for (std::int64_t j = 0; j < take; ++j) {
      y[i + j] = words[skip + j] >= threshold ? x[i + j] * scale : T{0};
    }
    i += take;
  }
}

template <typename T>
void drop(const DropoutArgs& args, const Stream& stream) {
  const int rank = args.x.shape.rank();
  const std::int64_t run = rank == 0 ? 1 : args.x.shape.back(0);
  const Shape strides = contiguous_strides(args.window.global_shape);
  const auto threshold = static_cast<std::uint32_t>(std::floor(args.p * 4294967296.0));
  const T scale = static_cast<T>(1.0 / (1.0 - args.p));
  parallel_for(stream, args.x.numel() / run, 1 + 4096 / run, [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t row = a; row < b; ++row) {
      std::int64_t index = rank == 0 ? 0 : args.window.offset[rank - 1];
      std::int64_t rest = row;
      for (int d = rank - 2; d >= 0; --d) {
        index += (rest % args.x.shape[d] + args.window.offset[d]) * strides[d];
        rest /= args.x.shape[d];
      }
      drop_row(args.x.as<T>() + row * run, args.y.as<T>() + row * run, run,
               static_cast<std::uint64_t>(index), args.key, threshold, scale);
    }
  });
}

}  // namespace

template <>
void dropout_kernel<DeviceType::kCpu>(const DropoutArgs& args, Stream& stream) {
  kernels::visit_f64_f32("dropout", args.x.dtype, [&]<typename T>() { drop<T>(args, stream); });
}

}  // namespace tessera::ops

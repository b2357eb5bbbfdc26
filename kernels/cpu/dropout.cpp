// SPDX-License-Identifier: Apache-2.0
// Runs of consecutive global indices take their random words in whole Philox blocks, one block per
// 64-bit lane; the words of a stretch are made first, then compared.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/vector-inl.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/dropout.hpp"

HWY_BEFORE_NAMESPACE();
namespace tessera::ops::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kBlocks = 256;  ///< Philox blocks of a stretch

/// Products of the lanes' lower halves.
template <class D, class V>
HWY_INLINE V low_product(D d, V x, V y) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, (hn::GetLane(x) & 0xFFFFFFFFULL) * hn::GetLane(y));
#else
  const hn::Repartition<std::uint32_t, D> d32;
  return hn::MulEven(hn::BitCast(d32, x), hn::BitCast(d32, y));
#endif
}

/// Words of the blocks [first, first + count): the same as random_bits. `count` is rounded up to
/// whole vectors. The upper halves of the lanes hold what multiplications ignore.
void philox_words(std::uint64_t key, std::uint64_t first, std::int64_t count,
                  std::uint32_t* words) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto low = hn::Set(d, 0xFFFFFFFFULL);
  const auto m0 = hn::Set(d, 0xD2511F53ULL);
  const auto m2 = hn::Set(d, 0xCD9E8D57ULL);
  auto number = hn::Iota(d, first);
  const auto step = hn::Set(d, static_cast<std::uint64_t>(lanes));
  for (std::int64_t j = 0; j < count; j += lanes) {
    auto c0 = number;
    auto c1 = hn::ShiftRight<32>(number);
    number = hn::Add(number, step);
    auto c2 = hn::Zero(d);
    auto c3 = hn::Zero(d);
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto a = low_product(d, c0, m0);
      const auto b = low_product(d, c2, m2);
      c0 = hn::Xor(hn::ShiftRight<32>(b), hn::Xor(c1, hn::Set(d, std::uint64_t{k0})));
      c2 = hn::Xor(hn::ShiftRight<32>(a), hn::Xor(c3, hn::Set(d, std::uint64_t{k1})));
      c1 = b;
      c3 = a;
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    const auto w01 = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
    const auto w23 = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
    hn::StoreInterleaved2(w01, w23, d, reinterpret_cast<std::uint64_t*>(words + 4 * j));
  }
}

/// y = words > limit ? x scale : 0.
void keep(const float* x, const std::uint32_t* words, float* y, std::int64_t count,
          std::uint32_t limit, float scale) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto bound = hn::Set(du, limit);
  const auto factor = hn::Set(d, scale);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    kernels::HWY_NAMESPACE::prefetch(x + i);
    const auto kept = hn::RebindMask(d, hn::Gt(hn::LoadU(du, words + i), bound));
    hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(hn::LoadU(d, x + i), factor)), d, y + i);
  }
  for (; i < count; ++i) y[i] = words[i] > limit ? x[i] * scale : 0.0F;
}

void keep(const double* x, const std::uint32_t* words, double* y, std::int64_t count,
          std::uint32_t limit, double scale) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = words[i] > limit ? x[i] * scale : 0.0;
}

template <typename T>
void drop(const T* x, T* y, std::int64_t count, std::uint64_t index, std::uint64_t key,
          std::uint32_t limit, T scale) {
  alignas(64) std::uint64_t words[2 * (kBlocks + hn::MaxLanes(hn::ScalableTag<std::uint64_t>()))];
  auto* const word = reinterpret_cast<std::uint32_t*>(words);
  for (std::int64_t i = 0; i < count;) {
    const std::uint64_t g = index + static_cast<std::uint64_t>(i);
    const auto skip = static_cast<std::int64_t>(g % 4);
    const std::int64_t take = std::min(count - i, 4 * kBlocks - skip);
    philox_words(key, g / 4, (skip + take + 3) / 4, word);
    keep(x + i, word + skip, y + i, take, limit, scale);
    i += take;
  }
}

void drop_f32(const float* x, float* y, std::int64_t n, std::uint64_t index, std::uint64_t key,
              std::uint32_t limit, float scale) {
  drop(x, y, n, index, key, limit, scale);
}
void drop_f64(const double* x, double* y, std::int64_t n, std::uint64_t index, std::uint64_t key,
              std::uint32_t limit, double scale) {
  drop(x, y, n, index, key, limit, scale);
}

}  // namespace
}  // namespace tessera::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::ops {
namespace {

HWY_EXPORT(drop_f32);
HWY_EXPORT(drop_f64);

void drop_run(const float* x, float* y, std::int64_t n, std::uint64_t index, std::uint64_t key,
              std::uint32_t limit, float scale) {
  HWY_DYNAMIC_DISPATCH(drop_f32)(x, y, n, index, key, limit, scale);
}
void drop_run(const double* x, double* y, std::int64_t n, std::uint64_t index, std::uint64_t key,
              std::uint32_t limit, double scale) {
  HWY_DYNAMIC_DISPATCH(drop_f64)(x, y, n, index, key, limit, scale);
}

/// Rows of consecutive global indices: the last dim, and the dims before it while those behind are
/// whole.
struct Rows {
  int lead = 0;  ///< dims that number the rows
  std::int64_t length = 1;
  std::int64_t first = 0;  ///< global index of the first element within a row's own dims
};

Rows rows_of(const DropoutArgs& args) {
  Rows rows;
  rows.lead = args.x.shape.rank();
  const Shape strides = contiguous_strides(args.window.global_shape);
  bool is_whole = true;
  while (rows.lead > 0 && is_whole) {
    const int d = --rows.lead;
    rows.length *= args.x.shape[d];
    rows.first += args.window.offset[d] * strides[d];
    is_whole = args.x.shape[d] == args.window.global_shape[d];
  }
  return rows;
}

template <typename T>
void drop_all(const DropoutArgs& args, const Stream& stream) {
  constexpr std::int64_t kGrain = 4096;
  const Rows rows = rows_of(args);
  const Shape strides = contiguous_strides(args.window.global_shape);
  // bits >= p 2^32 is bits > limit for p > 0 (the op copies for p = 0).
  const auto limit = static_cast<std::uint32_t>(std::ceil(args.p * 4294967296.0) - 1.0);
  const T scale = static_cast<T>(1.0 / (1.0 - args.p));
  const auto part = [&](std::int64_t row, std::int64_t first, std::int64_t count) {
    const std::int64_t local = row * rows.length + first;
    std::int64_t index = rows.first + first;
    for (int d = rows.lead - 1; d >= 0; --d) {
      index += (row % args.x.shape[d] + args.window.offset[d]) * strides[d];
      row /= args.x.shape[d];
    }
    drop_run(args.x.as<T>() + local, args.y.as<T>() + local, count,
             static_cast<std::uint64_t>(index), args.key.value, limit, scale);
  };
  const std::int64_t count = args.x.numel() / rows.length;
  if (count == 1) {
    parallel_for(stream, rows.length, kGrain,
                 [&](std::int64_t a, std::int64_t b) { part(0, a, b - a); });
    return;
  }
  parallel_for(stream, count, 1 + kGrain / rows.length, [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t row = a; row < b; ++row) part(row, 0, rows.length);
  });
}

}  // namespace

template <>
void dropout_kernel<DeviceType::kCpu>(const DropoutArgs& args, Stream& stream) {
  kernels::visit_f64_f32("dropout", args.x.dtype, [&]<typename T>() { drop_all<T>(args, stream); });
}

}  // namespace tessera::ops
#endif

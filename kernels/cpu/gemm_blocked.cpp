// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_blocked.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/gemm_blocked.hpp"
#include "kernels/cpu/gemm_tile-inl.hpp"
#include "tessera/core/parallel_for.hpp"

#ifndef TESSERA_KERNELS_CPU_GEMM_BLOCKED_ONCE_
#define TESSERA_KERNELS_CPU_GEMM_BLOCKED_ONCE_
namespace tessera::kernels {

/// A packed block of A (kBlockRows x kGemmInner) and of B (kGemmInner x kBlockColumns) share L2.
inline constexpr std::int64_t kBlockRows = 480;
inline constexpr std::int64_t kBlockColumns = 768;
/// Multiples of every target's tile.
inline constexpr std::int64_t kRowUnit = 24;
inline constexpr std::int64_t kColumnUnit = 32;

inline std::int64_t round_up(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

/// The part of C that one thread computes.
template <typename T>
struct GemmRegion {
  std::int64_t m, n, k;
  Strided<T> a, b;
  T* c;
  std::int64_t ldc;
  bool accumulates;
  T* workspace;
};

}  // namespace tessera::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

/// Strips of kWidth: out[strip][p][w] = x[(strip * kWidth + w) * across + p * along], zero beyond
/// `count`.
template <std::size_t kWidth, typename T>
void pack(const T* x, std::size_t across, std::size_t along, std::size_t count, std::size_t k,
          T* out) {
  for (std::size_t first = 0; first < count; first += kWidth, out += kWidth * k) {
    const std::size_t width = std::min(kWidth, count - first);
    const T* from = x + first * across;
    if (width < kWidth) std::fill(out, out + kWidth * k, T{0});
    if (across != 1) {
      transpose(from, across, width, k, out, kWidth);
    } else if (width == kWidth) {
      for (std::size_t p = 0; p < k; ++p) {
        const T* HWY_RESTRICT row = from + p * along;
        T* HWY_RESTRICT to = out + p * kWidth;
        for (std::size_t w = 0; w < kWidth; ++w) to[w] = row[w];
      }
    } else {
      for (std::size_t p = 0; p < k; ++p) {
        for (std::size_t w = 0; w < width; ++w) out[p * kWidth + w] = from[p * along + w];
      }
    }
  }
}

/// A strip of A times a panel of B that has fewer columns than a tile: by way of a buffer.
template <class D, typename T = hn::TFromD<D>>
void edge_tile(D d, std::size_t rows, std::size_t columns, std::size_t k, Left<T> a, Right<T> b,
               Target<T> c, Into into) {
  constexpr std::size_t kWidth = kTileVectors * hn::MaxLanes(D());
  alignas(64) T buffer[kTileRows * kWidth];
  tile_rows<kTileVectors>(d, rows, k, a, b, Target<T>{buffer, kWidth}, Into::kSet);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      T& out = c.data[i * c.row + j];
      out = into == Into::kAdd ? out + buffer[i * kWidth + j] : buffer[i * kWidth + j];
    }
  }
}

/// Packed A [m, k] times packed B [k, n] into c.
template <class D, typename T = hn::TFromD<D>>
void multiply_packed(D d, std::size_t m, std::size_t n, std::size_t k, const T* a, const T* b,
                     Target<T> c, Into into) {
  constexpr std::size_t kWidth = kTileVectors * hn::MaxLanes(D());
  for (std::size_t j = 0; j < n; j += kWidth) {
    const std::size_t columns = std::min(kWidth, n - j);
    const Right<T> panel{b + j * k, kWidth};
    for (std::size_t i = 0; i < m; i += kTileRows) {
      const std::size_t rows = std::min(kTileRows, m - i);
      const Left<T> strip{a + i * k, 1, kTileRows};
      const Target<T> out{c.data + i * c.row + j, c.row};
      if (columns == kWidth) {
        tile_rows<kTileVectors>(d, rows, k, strip, panel, out, into);
      } else {
        edge_tile(d, rows, columns, k, strip, panel, out, into);
      }
    }
  }
}

template <typename T>
void gemm_region(const GemmRegion<T>& r) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kWidth = kTileVectors * hn::MaxLanes(hn::ScalableTag<T>());
  static_assert(kRowUnit % kTileRows == 0 && kColumnUnit % kWidth == 0);
  const auto size = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  const std::int64_t deepest = std::min(r.k, kGemmInner);
  T* packed_b = r.workspace + round_up(std::min(r.m, kBlockRows), kRowUnit) * deepest;
  for (std::int64_t j = 0; j < r.n; j += kBlockColumns) {
    const std::int64_t columns = std::min(kBlockColumns, r.n - j);
    for (std::int64_t p = 0; p < r.k; p += kGemmInner) {
      const std::int64_t depth = std::min(kGemmInner, r.k - p);
      const Into into = p == 0 && !r.accumulates ? Into::kSet : Into::kAdd;
      pack<kWidth>(r.b.data + p * r.b.row + j * r.b.column, size(r.b.column), size(r.b.row),
                   size(columns), size(depth), packed_b);
      for (std::int64_t i = 0; i < r.m; i += kBlockRows) {
        const std::int64_t rows = std::min(kBlockRows, r.m - i);
        pack<kTileRows>(r.a.data + i * r.a.row + p * r.a.column, size(r.a.row), size(r.a.column),
                        size(rows), size(depth), r.workspace);
        multiply_packed(d, size(rows), size(columns), size(depth), r.workspace, packed_b,
                        Target<T>{r.c + i * r.ldc + j, size(r.ldc)}, into);
      }
    }
  }
}

void gemm_region_f32(const GemmRegion<float>& region) { gemm_region(region); }
void gemm_region_f64(const GemmRegion<double>& region) { gemm_region(region); }

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(gemm_region_f32);
HWY_EXPORT(gemm_region_f64);

void run_region(const GemmRegion<float>& region) { HWY_DYNAMIC_DISPATCH(gemm_region_f32)(region); }
void run_region(const GemmRegion<double>& region) { HWY_DYNAMIC_DISPATCH(gemm_region_f64)(region); }

struct Grid {
  std::int64_t rows = 1, columns = 1;
};

/// Of the ways to share C among `parts` threads, the one that packs least.
Grid best_grid(std::int64_t m, std::int64_t n, int parts) {
  Grid best{1, 1};
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t rows = 1; rows <= parts; ++rows) {
    if (parts % rows != 0) continue;
    const Grid grid{rows, parts / rows};
    // The largest region's work, and its packing (a packed element costs some 16 multiply-adds).
    const double region_m = static_cast<double>(round_up((m + rows - 1) / rows, kRowUnit));
    const double region_n =
        static_cast<double>(round_up((n + grid.columns - 1) / grid.columns, kColumnUnit));
    const double cost = region_m * region_n + 16.0 * (region_m + region_n);
    if (cost < least) {
      least = cost;
      best = grid;
    }
  }
  return best;
}

struct Range {
  std::int64_t first, last;
};

/// Part `index` of [0, size) in whole units.
Range part_of(std::int64_t size, std::int64_t unit, std::int64_t parts, std::int64_t index) {
  const std::int64_t units = (size + unit - 1) / unit;
  return {std::min(size, units * index / parts * unit),
          std::min(size, units * (index + 1) / parts * unit)};
}

std::int64_t region_workspace(std::int64_t m, std::int64_t n, std::int64_t k) {
  return (round_up(std::min(m, kBlockRows), kRowUnit) +
          round_up(std::min(n, kBlockColumns), kColumnUnit)) *
         std::min(k, kGemmInner);
}

template <typename T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Strided<T> a, Strided<T> b, T* c,
          std::int64_t ldc, bool accumulates, T* workspace, const Stream& stream) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (std::int64_t i = 0; i < m && !accumulates; ++i) std::fill_n(c + i * ldc, n, T{0});
    return;
  }
  // A thread is worth its start from some 2^18 multiply-adds on.
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const int parts = static_cast<int>(
      std::clamp(work / 262144.0, 1.0, static_cast<double>(std::max(stream.threads(), 1))));
  const Grid grid = best_grid(m, n, parts);
  const std::int64_t workspace_each = region_workspace(m, n, k);
  parallel_for(stream, grid.rows * grid.columns, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      const Range rows = part_of(m, kRowUnit, grid.rows, part / grid.columns);
      const Range columns = part_of(n, kColumnUnit, grid.columns, part % grid.columns);
      const std::int64_t i = rows.first;
      const std::int64_t j = columns.first;
      run_region(GemmRegion<T>{rows.last - i, columns.last - j, k,
                               Strided<T>{a.data + i * a.row, a.row, a.column},
                               Strided<T>{b.data + j * b.column, b.row, b.column}, c + i * ldc + j,
                               ldc, accumulates, workspace + part * workspace_each});
    }
  });
}

}  // namespace

void gemm_blocked(std::int64_t m, std::int64_t n, std::int64_t k, Strided<float> a,
                  Strided<float> b, float* c, std::int64_t ldc, bool accumulates, float* workspace,
                  const Stream& stream) {
  gemm(m, n, k, a, b, c, ldc, accumulates, workspace, stream);
}

void gemm_blocked(std::int64_t m, std::int64_t n, std::int64_t k, Strided<double> a,
                  Strided<double> b, double* c, std::int64_t ldc, bool accumulates,
                  double* workspace, const Stream& stream) {
  gemm(m, n, k, a, b, c, ldc, accumulates, workspace, stream);
}

std::int64_t gemm_workspace(std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
  return std::max(threads, 1) * region_workspace(m, n, k);
}

}  // namespace tessera::kernels
#endif

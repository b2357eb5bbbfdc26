// SPDX-License-Identifier: Apache-2.0
// Register tiles of a matrix product, and the transpose that feeds them, for the instruction set
// being compiled. Included once per Highway target, hence the toggled guard. One element of C is
// one accumulator that runs over K in order, whatever tile it is in: its bits depend on its row of
// A, its column of B and K only.
#if defined(TESSERA_KERNELS_CPU_GEMM_TILE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CPU_GEMM_TILE_INL_HPP_
#undef TESSERA_KERNELS_CPU_GEMM_TILE_INL_HPP_
#else
#define TESSERA_KERNELS_CPU_GEMM_TILE_INL_HPP_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Rows and vectors of the tile whose accumulators fill the register file.
inline constexpr std::size_t kTileRows = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 12 : 6;
inline constexpr std::size_t kTileVectors = 2;

/// A of element (i, p) at data[i * row + p * column].
template <typename T>
struct Left {
  const T* data;
  std::size_t row;
  std::size_t column;
};
/// B and C: element (p, j) at data[p * row + j].
template <typename T>
struct Right {
  const T* data;
  std::size_t row;
};
template <typename T>
struct Target {
  T* data;
  std::size_t row;
};

enum class Into { kSet, kAdd };

/// c [kRows, kVectors lanes] = a b over k, or added to c after the sum.
template <std::size_t kRows, std::size_t kVectors, class D, typename T = hn::TFromD<D>>
HWY_NOINLINE void tile(D d, std::size_t k, Left<T> a, Right<T> b, Target<T> c, Into into) {
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<D> sums[kRows][kVectors];
#pragma GCC unroll 12
  for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
      hwy::Prefetch(c.data + i * c.row + v * lanes);
      sums[i][v] = hn::Zero(d);
    }
  }
  const T* HWY_RESTRICT left = a.data;
  const T* HWY_RESTRICT right = b.data;
  for (std::size_t p = 0; p < k; ++p, left += a.column, right += b.row) {
    hn::Vec<D> columns[kVectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) columns[v] = hn::LoadU(d, right + v * lanes);
#pragma GCC unroll 12
    for (std::size_t i = 0; i < kRows; ++i) {
      const auto factor = hn::Set(d, left[i * a.row]);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[i][v] = hn::MulAdd(factor, columns[v], sums[i][v]);
      }
    }
  }
#pragma GCC unroll 12
  for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
      T* out = c.data + i * c.row + v * lanes;
      hn::StoreU(into == Into::kAdd ? hn::Add(hn::LoadU(d, out), sums[i][v]) : sums[i][v], d, out);
    }
  }
}

/// `rows` <= kTileRows rows of the same.
template <std::size_t kVectors, class D, typename T = hn::TFromD<D>>
HWY_INLINE void tile_rows(D d, std::size_t rows, std::size_t k, Left<T> a, Right<T> b, Target<T> c,
                          Into into) {
  if (rows == kTileRows) return tile<kTileRows, kVectors>(d, k, a, b, c, into);
  const auto advance = [&a, &c](std::size_t count) {
    a.data += count * a.row;
    c.data += count * c.row;
  };
  if (rows & 8) {
    tile<8, kVectors>(d, k, a, b, c, into);
    advance(8);
  }
  if (rows & 4) {
    tile<4, kVectors>(d, k, a, b, c, into);
    advance(4);
  }
  if (rows & 2) {
    tile<2, kVectors>(d, k, a, b, c, into);
    advance(2);
  }
  if (rows & 1) tile<1, kVectors>(d, k, a, b, c, into);
}

/// c [m, n] = a [m, k] b [k, n], or added to c; n is a multiple of the lanes.
template <class D, typename T = hn::TFromD<D>>
HWY_NOINLINE void multiply(D d, std::size_t m, std::size_t n, std::size_t k, Left<T> a, Right<T> b,
                           Target<T> c, Into into) {
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t j = 0; j < n; j += kTileVectors * lanes) {
    for (std::size_t i = 0; i < m; i += kTileRows) {
      const std::size_t rows = std::min(kTileRows, m - i);
      const Left<T> left{a.data + i * a.row, a.row, a.column};
      const Right<T> right{b.data + j, b.row};
      const Target<T> out{c.data + i * c.row + j, c.row};
      if (n - j > lanes) {
        tile_rows<kTileVectors>(d, rows, k, left, right, out, into);
      } else {
        tile_rows<1>(d, rows, k, left, right, out, into);
      }
    }
  }
}

/// y[j * y_row + i] = x[i * x_row + j] for i < rows, j < columns.
template <typename T>
HWY_INLINE void transpose(const T* x, std::size_t x_row, std::size_t rows, std::size_t columns,
                          T* y, std::size_t y_row) {
  std::size_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr std::size_t kBlock = 16 / sizeof(T);
  const hn::FixedTag<T, kBlock> d;
  for (; j + kBlock <= columns; j += kBlock) {
    std::size_t i = 0;
    for (; i + kBlock <= rows; i += kBlock) {
      const T* from = x + i * x_row + j;
      T* to = y + j * y_row + i;
      const auto r0 = hn::LoadU(d, from);
      const auto r1 = hn::LoadU(d, from + x_row);
      if constexpr (kBlock == 2) {
        hn::StoreU(hn::InterleaveLower(d, r0, r1), d, to);
        hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, to + y_row);
      } else {
        const auto r2 = hn::LoadU(d, from + 2 * x_row);
        const auto r3 = hn::LoadU(d, from + 3 * x_row);
        const auto a = hn::InterleaveLower(d, r0, r2);
        const auto b = hn::InterleaveLower(d, r1, r3);
        const auto e = hn::InterleaveUpper(d, r0, r2);
        const auto f = hn::InterleaveUpper(d, r1, r3);
        hn::StoreU(hn::InterleaveLower(d, a, b), d, to);
        hn::StoreU(hn::InterleaveUpper(d, a, b), d, to + y_row);
        hn::StoreU(hn::InterleaveLower(d, e, f), d, to + 2 * y_row);
        hn::StoreU(hn::InterleaveUpper(d, e, f), d, to + 3 * y_row);
      }
    }
    for (; i < rows; ++i) {
      for (std::size_t b = 0; b < kBlock; ++b) y[(j + b) * y_row + i] = x[i * x_row + j + b];
    }
  }
#endif
  for (; j < columns; ++j) {
    for (std::size_t i = 0; i < rows; ++i) y[j * y_row + i] = x[i * x_row + j];
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

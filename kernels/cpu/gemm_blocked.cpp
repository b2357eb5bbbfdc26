// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/gemm_blocked.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t kRows = 6;      ///< rows of a register tile
constexpr std::int64_t kColumns = 16;  ///< columns of a register tile

/// Tile of C: A strip [k][kRows], B panel [k][kColumns]; sums start from C or zero and run over K
/// in order.
template <typename T>
[[gnu::always_inline]] inline void tile(std::int64_t k, const T* a, const T* b, T* sums) {
  T acc[kRows][kColumns];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) acc[i][j] = sums[i * kColumns + j];
  }
  for (std::int64_t p = 0; p < k; ++p, a += kRows, b += kColumns) {
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) acc[i][j] = std::fma(a[i], b[j], acc[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) sums[i * kColumns + j] = acc[i][j];
  }
}

TESSERA_MULTIVERSION void tile_run(std::int64_t k, const float* a, const float* b, float* sums) {
  tile(k, a, b, sums);
}
TESSERA_MULTIVERSION void tile_run(std::int64_t k, const double* a, const double* b, double* sums) {
  tile(k, a, b, sums);
}

template <typename T>
void pack_panel(Strided<T> b, std::int64_t k, std::int64_t first, std::int64_t count, T* out) {
  for (std::int64_t p = 0; p < k; ++p, out += kColumns) {
    const T* row = b.data + p * b.row + first * b.column;
    for (std::int64_t j = 0; j < count; ++j) out[j] = row[j * b.column];
    for (std::int64_t j = count; j < kColumns; ++j) out[j] = T{0};
  }
}

template <typename T>
void pack_strip(Strided<T> a, std::int64_t k, std::int64_t first, std::int64_t count, T* out) {
  for (std::int64_t p = 0; p < k; ++p, out += kRows) {
    const T* column = a.data + first * a.row + p * a.column;
    for (std::int64_t i = 0; i < count; ++i) out[i] = column[i * a.row];
    for (std::int64_t i = count; i < kRows; ++i) out[i] = T{0};
  }
}

template <typename T>
void multiply_strip(std::int64_t row, std::int64_t rows, std::int64_t n, std::int64_t k,
                    const T* strip, const T* panels, T* c, std::int64_t ldc, bool accumulates) {
  for (std::int64_t column = 0; column < n; column += kColumns) {
    const std::int64_t columns = std::min(kColumns, n - column);
    T sums[kRows * kColumns] = {};
    T* out = c + row * ldc + column;
    if (accumulates) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) sums[i * kColumns + j] = out[i * ldc + j];
      }
    }
    tile_run(k, strip, panels + column * k, sums);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) out[i * ldc + j] = sums[i * kColumns + j];
    }
  }
}

template <typename T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Strided<T> a, Strided<T> b, T* c,
          std::int64_t ldc, bool accumulates, T* workspace, const Stream& stream) {
  T* panels = workspace;
  const std::int64_t panel_count = (n + kColumns - 1) / kColumns;
  T* strips = panels + panel_count * kColumns * k;
  parallel_for(stream, panel_count, 4, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t p = first; p < last; ++p) {
      pack_panel(b, k, p * kColumns, std::min(kColumns, n - p * kColumns),
                 panels + p * kColumns * k);
    }
  });
  std::atomic<int> next_strip{0};
  parallel_for(stream, (m + kRows - 1) / kRows, 1, [&](std::int64_t first, std::int64_t last) {
    T* strip = strips + next_strip.fetch_add(1) * kRows * k;
    for (std::int64_t s = first; s < last; ++s) {
      const std::int64_t rows = std::min(kRows, m - s * kRows);
      pack_strip(a, k, s * kRows, rows, strip);
      multiply_strip(s * kRows, rows, n, k, strip, panels, c, ldc, accumulates);
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

std::int64_t gemm_workspace(std::int64_t n, std::int64_t k, int threads) {
  return (n + kColumns - 1) / kColumns * kColumns * k + threads * kRows * k;
}

}  // namespace tessera::kernels

// SPDX-License-Identifier: Apache-2.0
// The matrix product in f64, one dot product per element.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace tessera::reference {

/// Row-major [rows, columns].
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c) {}
  Matrix(std::size_t r, std::size_t c, std::vector<double> v)
      : rows(r), columns(c), values(std::move(v)) {}
  double& operator()(std::size_t i, std::size_t j) { return values[i * columns + j]; }
  double operator()(std::size_t i, std::size_t j) const { return values[i * columns + j]; }
};

inline Matrix transposed(const Matrix& x) {
  Matrix y(x.columns, x.rows);
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.columns; ++j) y(j, i) = x(i, j);
  }
  return y;
}

/// [M, K] times [K, N].
inline Matrix matmul(const Matrix& a, const Matrix& b) {
  const Matrix columns = transposed(b);
  Matrix c(a.rows, b.columns);
  for (std::size_t i = 0; i < c.rows; ++i) {
    for (std::size_t j = 0; j < c.columns; ++j) {
      double sum = 0.0;
      for (std::size_t p = 0; p < a.columns; ++p) sum += a(i, p) * columns(j, p);
      c(i, j) = sum;
    }
  }
  return c;
}

}  // namespace tessera::reference

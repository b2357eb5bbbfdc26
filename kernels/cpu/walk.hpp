// SPDX-License-Identifier: Apache-2.0
// Walks several strided views of one shape together: dims that lie behind each other in all of them
// are merged, and the leading dims are counted up like an odometer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tessera/core/parallel_for.hpp"
#include "tessera/core/shape.hpp"

namespace tessera::kernels {

template <std::size_t N>
using Offsets = std::array<std::int64_t, N>;

template <std::size_t N>
struct Walk {
  Shape shape;                   ///< at least one dim
  std::array<Shape, N> strides;  ///< of each view

  int last() const { return shape.rank() - 1; }
  std::int64_t run() const { return shape[last()]; }
  std::int64_t rows() const { return shape.numel(0, last()); }
};

/// The walk over views of one shape, without dims of size 1, adjacent dims merged where all views
/// allow it.
template <std::size_t N>
Walk<N> merged_walk(const Shape& shape, const std::array<Shape, N>& strides) {
  Walk<N> walk;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    const int last = walk.last();
    bool merges = last >= 0;
    for (std::size_t k = 0; merges && k < N; ++k) {
      merges = walk.strides[k][last] == strides[k][d] * shape[d];
    }
    if (merges) {
      walk.shape[last] *= shape[d];
      for (std::size_t k = 0; k < N; ++k) walk.strides[k][last] = strides[k][d];
    } else {
      walk.shape.push_back(shape[d]);
      for (std::size_t k = 0; k < N; ++k) walk.strides[k].push_back(strides[k][d]);
    }
  }
  if (walk.shape.rank() == 0) {
    walk.shape.push_back(1);
    for (Shape& s : walk.strides) s.push_back(1);
  }
  return walk;
}

/// body(offsets, count) over runs of the last dim: whole runs, or parts of the only one. `grain`
/// elements at least go to one thread.
template <std::size_t N, typename Body>
void walk_runs(const Stream& stream, const Walk<N>& walk, std::int64_t grain, Body&& body) {
  const int last = walk.last();
  const std::int64_t run = walk.run();
  const std::int64_t rows = walk.rows();
  if (rows == 1) {
    parallel_for(stream, run, grain, [&](std::int64_t a, std::int64_t b) {
      Offsets<N> offsets;
      for (std::size_t k = 0; k < N; ++k) offsets[k] = a * walk.strides[k][last];
      body(offsets, b - a);
    });
    return;
  }
  parallel_for(stream, rows, 1 + grain / run, [&](std::int64_t a, std::int64_t b) {
    Shape index = Shape::filled(walk.shape.rank(), 0);
    Offsets<N> offsets{};
    std::int64_t rest = a;
    for (int d = last - 1; d >= 0; --d) {
      index[d] = rest % walk.shape[d];
      rest /= walk.shape[d];
      for (std::size_t k = 0; k < N; ++k) offsets[k] += index[d] * walk.strides[k][d];
    }
    for (std::int64_t row = a; row < b; ++row) {
      body(offsets, run);
      for (int d = last - 1; d >= 0; --d) {
        const bool carries = ++index[d] == walk.shape[d];
        const std::int64_t moved = carries ? 1 - walk.shape[d] : 1;
        for (std::size_t k = 0; k < N; ++k) offsets[k] += moved * walk.strides[k][d];
        if (!carries) break;
        index[d] = 0;
      }
    }
  });
}

}  // namespace tessera::kernels

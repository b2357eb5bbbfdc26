// SPDX-License-Identifier: Apache-2.0
// Tensors of all ranks of a small mesh in one process: cutting whole arrays into the ranks' pieces
// by their sharding types, and putting pieces together again.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "graph.hpp"
#include "tessera/core/sharding.hpp"

namespace tessera::autograd::testing {

/// A whole tensor, or a piece, on the test's side.
struct Array {
  Shape shape;
  Values data;
};

inline Array narrow(const Array& x, int dim, std::int64_t first, std::int64_t size) {
  Array out{x.shape, {}};
  out.shape[dim] = size;
  const std::int64_t inner = x.shape.numel(dim + 1, x.shape.rank());
  for (std::int64_t o = 0; o < x.shape.numel(0, dim); ++o) {
    const auto begin = x.data.begin() + (o * x.shape[dim] + first) * inner;
    out.data.insert(out.data.end(), begin, begin + size * inner);
  }
  return out;
}

inline std::optional<Array> concat(const std::vector<Array>& parts, int dim) {
  Array out{parts[0].shape, {}};
  if (dim >= out.shape.rank()) return std::nullopt;
  out.shape[dim] = 0;
  for (const Array& part : parts) {
    Shape expected = part.shape;
    if (expected.rank() != out.shape.rank()) return std::nullopt;
    out.shape[dim] += expected[dim];
    expected[dim] = out.shape[dim];
    if (expected != out.shape) return std::nullopt;
  }
  for (std::int64_t o = 0; o < out.shape.numel(0, dim); ++o) {
    for (const Array& part : parts) {
      const std::int64_t run = part.shape.numel(dim, part.shape.rank());
      const auto begin = part.data.begin() + o * run;
      out.data.insert(out.data.end(), begin, begin + run);
    }
  }
  return out;
}

inline bool is_close(const Array& a, const Array& b) {
  if (a.shape != b.shape) return false;
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    if (!(std::abs(a.data[i] - b.data[i]) <= 1e-10 * (1.0 + std::abs(b.data[i])))) return false;
  }
  return true;
}

inline std::optional<Array> sum_of(const std::vector<Array>& parts) {
  Array out = parts[0];
  for (std::size_t p = 1; p < parts.size(); ++p) {
    if (parts[p].shape != out.shape) return std::nullopt;
    for (std::size_t i = 0; i < out.data.size(); ++i) out.data[i] += parts[p].data[i];
  }
  return out;
}

/// The type on every axis.
using Types = std::vector<AxisType>;

/// Axis sizes; ranks count the last axis fastest. Axes named a0, a1, ...
struct SimulatedMesh {
  std::vector<int> sizes;

  int ranks() const {
    int count = 1;
    for (const int size : sizes) count *= size;
    return count;
  }
  int coordinate(int rank, std::size_t axis) const {
    for (std::size_t a = sizes.size(); a-- > axis + 1;) rank /= sizes[a];
    return rank % sizes[axis];
  }
  AxisTable table(int rank) const {
    AxisTable table;
    for (std::size_t a = 0; a < sizes.size(); ++a) {
      table.axes.push_back({"a" + std::to_string(a), sizes[a], coordinate(rank, a)});
    }
    return table;
  }

  /// The pieces of all ranks. Pending sums are cut into random parts; V takes other values.
  std::vector<Array> cut(const Array& whole, const Types& types, std::uint64_t seed) const {
    std::vector<Array> pieces;
    for (int rank = 0; rank < ranks(); ++rank) pieces.push_back(piece(whole, types, seed, rank));
    return pieces;
  }

  /// The whole; nothing where the pieces contradict the types. Where two axes split one dim, the
  /// first axis is the outer split.
  std::optional<Array> assemble(std::vector<Array> pieces, const Types& types) const {
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      std::vector<Array> merged;
      const auto size = static_cast<std::size_t>(sizes[axis]);
      for (std::size_t first = 0; first < pieces.size(); first += size) {
        const std::vector<Array> group(pieces.begin() + static_cast<std::ptrdiff_t>(first),
                                       pieces.begin() + static_cast<std::ptrdiff_t>(first + size));
        std::optional<Array> one = merge(group, types[axis]);
        if (!one) return std::nullopt;
        merged.push_back(std::move(*one));
      }
      pieces = std::move(merged);
    }
    return pieces[0];
  }

 private:
  static std::optional<Array> merge(const std::vector<Array>& group, const AxisType& type) {
    if (type.kind == AxisKind::kPartial) return sum_of(group);
    if (type.kind == AxisKind::kShard) return concat(group, type.dim);
    for (const Array& other : group) {
      if (!is_close(other, group[0])) return std::nullopt;
    }
    return group[0];
  }

  Array piece(const Array& whole, const Types& types, std::uint64_t seed, int rank) const {
    Array x = whole;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
      if (types[axis].kind != AxisKind::kPartial) continue;
      // Part c of n: noise for c > 0; part 0 is what is left.
      const int own = coordinate(rank, axis);
      Array rest = x;
      for (int c = 1; c < sizes[axis]; ++c) {
        const auto key = seed * 1000 + axis * 100 + static_cast<std::uint64_t>(c);
        const Values part = noise(x.shape.numel(), key);
        for (std::size_t i = 0; i < part.size(); ++i) rest.data[i] -= part[i];
        if (c == own) x.data = part;
      }
      if (own == 0) x = rest;
    }
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
      const AxisType& type = types[axis];
      if (type.kind != AxisKind::kShard) continue;
      const ChunkRange chunk =
          balanced_chunk(x.shape[type.dim], type.unit, sizes[axis], coordinate(rank, axis));
      x = narrow(x, type.dim, chunk.first, chunk.size);
    }
    return x;
  }
};

}  // namespace tessera::autograd::testing

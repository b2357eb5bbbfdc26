// SPDX-License-Identifier: Apache-2.0
// Sizes of a tensor's dims, held inline (at most kMaxRank dims), and contiguous strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tessera {

inline constexpr int kMaxRank = 8;

/// A short list of int64: a shape, strides (in elements) or coordinates.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);
  /// `rank` dims, each `value`.
  static Shape filled(int rank, std::int64_t value);

  int rank() const { return rank_; }
  std::int64_t operator[](int dim) const { return dims_[static_cast<std::size_t>(dim)]; }
  std::int64_t& operator[](int dim) { return dims_[static_cast<std::size_t>(dim)]; }
  /// Size of a dim counted from the end: back(0) is the last.
  std::int64_t back(int from_end) const { return (*this)[rank_ - 1 - from_end]; }
  void push_back(std::int64_t dim);
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + rank_; }

  /// Product of all dims; 1 for rank 0.
  std::int64_t numel() const;
  /// Product of the dims [first, last).
  std::int64_t numel(int first, int last) const;
  /// Dims [first, last) as a shape.
  Shape slice(int first, int last) const;

  bool operator==(const Shape& other) const;
  /// "[2, 3]".
  std::string to_string() const;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// Row-major strides in elements.
Shape contiguous_strides(const Shape& shape);

/// Shape of a and b broadcast together from the right (sizes equal or 1); kShape error otherwise.
Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace tessera

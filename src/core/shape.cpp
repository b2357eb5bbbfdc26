// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/shape.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera {

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) {
  for (const std::int64_t dim : dims) push_back(dim);
}

Shape Shape::filled(int rank, std::int64_t value) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.push_back(value);
  return shape;
}

void Shape::push_back(std::int64_t dim) {
  if (rank_ == kMaxRank) {
    throw Error(ErrorCode::kShape, fmt::format("a tensor has at most {} dims", kMaxRank));
  }
  dims_[static_cast<std::size_t>(rank_++)] = dim;
}

std::int64_t Shape::numel() const { return numel(0, rank_); }

std::int64_t Shape::numel(int first, int last) const {
  std::int64_t product = 1;
  for (int i = first; i < last; ++i) product *= (*this)[i];
  return product;
}

Shape Shape::slice(int first, int last) const {
  Shape out;
  for (int i = first; i < last; ++i) out.push_back((*this)[i]);
  return out;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(begin(), end(), ", "));
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = Shape::filled(shape.rank(), 1);
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out = Shape::filled(rank, 1);
  for (int i = 0; i < rank; ++i) {
    const std::int64_t da = i < a.rank() ? a.back(i) : 1;
    const std::int64_t db = i < b.rank() ? b.back(i) : 1;
    if (da != db && da != 1 && db != 1) {
      throw Error(ErrorCode::kShape,
                  fmt::format("shapes {} and {} do not broadcast: sizes {} and {} of a dim differ "
                              "and neither is 1",
                              a.to_string(), b.to_string(), da, db));
    }
    out[rank - 1 - i] = da == 1 ? db : da;
  }
  return out;
}

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/sharding.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera {

AxisId AxisTable::find(std::string_view name) const {
  for (int i = 0; i < count(); ++i) {
    if (axes[static_cast<std::size_t>(i)].name == name) return i;
  }
  return -1;
}

std::string to_string(const AxisType& type) {
  switch (type.kind) {
    case AxisKind::kReplicate:
      return "R";
    case AxisKind::kInvariant:
      return "I";
    case AxisKind::kVarying:
      return "V";
    case AxisKind::kPartial:
      return "P";
    case AxisKind::kShard:
      break;
  }
  std::string out = fmt::format("S({}", type.dim);
  if (type.size >= 0) out += fmt::format(" of {}", type.size);
  if (type.unit != 1) out += fmt::format(", unit {}", type.unit);
  if (type.order != 0) out += fmt::format(", order {}", type.order);
  return out + ")";
}

ShardingType::ShardingType(const AxisTable* axes, AxisType type) : axes_(axes) {
  for (int i = 0; i < count(); ++i) types_[static_cast<std::size_t>(i)] = type;
}

ShardingType ShardingType::with(AxisId axis, AxisType type) const {
  TESSERA_CHECK(axis >= 0 && axis < count(), "axis {} is not one of the {} axes of {}", axis,
                count(), to_string(*this));
  ShardingType copy = *this;
  copy[axis] = type;
  return copy;
}

ShardingType ShardingType::dual() const {
  ShardingType copy = *this;
  for (int i = 0; i < count(); ++i) copy[i] = copy[i].dual();
  return copy;
}

ChunkRange ShardingType::range(int dim, std::int64_t size) const {
  ChunkRange range{0, size};
  for (int order = 0, seen = 1; seen != 0; ++order) {
    seen = 0;
    for (AxisId axis = 0; axis < count(); ++axis) {
      const AxisType& t = (*this)[axis];
      if (t.kind != AxisKind::kShard || t.dim != dim) continue;
      if (t.order > order) seen = 1;
      if (t.order != order) continue;
      const auto& info = axes_->axes[static_cast<std::size_t>(axis)];
      const ChunkRange inner = balanced_chunk(range.size, t.unit, info.size, info.coordinate);
      range = {range.first + inner.first, inner.size};
    }
  }
  return range;
}

namespace {

[[noreturn]] void reject_split(const ShardingType& type, const Shape& local, int dim,
                               const std::string& why) {
  throw Error(ErrorCode::kShardingType, fmt::format("dim {} of a tensor of local shape {} on [{}]: "
                                                    "{}",
                                                    dim, local.to_string(), to_string(type), why));
}

}  // namespace

ShardingType ShardingType::over(const Shape& local) const {
  ShardingType result = *this;
  for (AxisId axis = 0; axis < count(); ++axis) {
    if ((*this)[axis].kind != AxisKind::kShard) continue;
    const int dim = (*this)[axis].dim;
    if (dim < 0 || dim >= local.rank()) reject_split(*this, local, dim, "there is no such dim");
    // All splits of the dim, outermost first: their parts, and the one size they agree on.
    std::int64_t parts = 1;
    std::int64_t size = -1;
    std::uint32_t orders = 0;
    int splits = 0;
    for (AxisId other = 0; other < count(); ++other) {
      const AxisType& t = (*this)[other];
      if (t.kind != AxisKind::kShard || t.dim != dim) continue;
      if (other < axis) break;  // this dim is done
      ++splits;
      orders |= 1U << t.order;
      parts *= axes_->axes[static_cast<std::size_t>(other)].size;
      if (size >= 0 && t.size >= 0 && t.size != size) {
        reject_split(*this, local, dim, "its splits name different sizes of the whole");
      }
      size = std::max(size, t.size);
    }
    if (splits == 0) continue;
    if (orders != (1U << splits) - 1) {
      reject_split(*this, local, dim,
                   "several axes split it; their orders must be 0, 1, ... outermost first. Undo "
                   "the innermost split first");
    }
    if (size < 0) size = local[dim] * parts;
    for (AxisId other = 0; other < count(); ++other) {
      AxisType& t = result[other];
      if (t.kind == AxisKind::kShard && t.dim == dim) t.size = size;
    }
    if (const ChunkRange own = range(dim, size); own.size != local[dim]) {
      reject_split(*this, local, dim,
                   fmt::format("this rank's chunk of {} elements has {}. Where chunks are not all "
                               "alike, say the size of the whole: AxisType::shard(dim).of(size)",
                               size, own.size));
    }
  }
  return result;
}

bool ShardingType::operator==(const ShardingType& other) const {
  if (axes_ != other.axes_) return false;
  return std::equal(types_.begin(), types_.begin() + count(), other.types_.begin());
}

std::string to_string(const ShardingType& type) {
  if (type.axes() == nullptr) return "no mesh";
  std::string out;
  for (int i = 0; i < type.count(); ++i) {
    out += fmt::format("{}{}: {}", i == 0 ? "" : ", ",
                       type.axes()->axes[static_cast<std::size_t>(i)].name, to_string(type[i]));
  }
  return out;
}

ChunkRange balanced_chunk(std::int64_t size, std::int64_t unit, int parts, int index) {
  TESSERA_CHECK(size >= 0 && unit >= 1 && parts >= 1 && index >= 0 && index < parts,
                "no chunk {} of {} over {} elements in units of {}", index, parts, size, unit);
  const std::int64_t units = (size + unit - 1) / unit;
  const std::int64_t base = units / parts;
  const std::int64_t extra = units % parts;
  const std::int64_t first_unit = base * index + std::min<std::int64_t>(index, extra);
  const std::int64_t last_unit = first_unit + base + (index < extra ? 1 : 0);
  const std::int64_t first = std::min(first_unit * unit, size);
  return {first, std::min(last_unit * unit, size) - first};
}

}  // namespace tessera

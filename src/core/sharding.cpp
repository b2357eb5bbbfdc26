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
  return type.unit == 1 ? fmt::format("S({})", type.dim)
                        : fmt::format("S({}, unit {})", type.dim, type.unit);
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

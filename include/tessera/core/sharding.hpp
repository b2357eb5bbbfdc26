// SPDX-License-Identifier: Apache-2.0
// Sharding types: what the values of a tensor on the ranks of one mesh axis have to do with each
// other, and with that what its gradient is. One type per atomic mesh axis.
//   Replicate R   same value on every rank; gradient is Partial
//   Invariant I   one computation that every rank repeats; gradient is Invariant
//   Shard S(d)    contiguous balanced chunks of dim d, in whole units; gradient likewise
//   Varying V     different values, no dim; gradient likewise
//   Partial P     the value is the sum over the ranks; gradient is Replicate
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/shape.hpp"

namespace tessera {

inline constexpr int kMaxAxes = 8;

/// Index of an atomic axis in its AxisTable.
using AxisId = int;

/// The atomic axes of a mesh and this rank's coordinate on each. Interned by the Context
/// (Context::intern_axes), so that pointers compare equal exactly when the tables do.
struct AxisTable {
  struct Axis {
    std::string name;
    int size = 1;
    int coordinate = 0;
    bool operator==(const Axis&) const = default;
  };
  std::vector<Axis> axes;

  int count() const { return static_cast<int>(axes.size()); }
  /// Id of a named axis, or -1.
  AxisId find(std::string_view name) const;
  bool operator==(const AxisTable&) const = default;
};

enum class AxisKind : std::uint8_t { kReplicate, kInvariant, kShard, kVarying, kPartial };

/// The type on one axis. What follows `kind` has a meaning for kShard only.
struct AxisType {
  AxisKind kind = AxisKind::kInvariant;
  std::int8_t dim = -1;    ///< the split dim
  std::uint8_t order = 0;  ///< where several axes split one dim: 0 is the outermost split
  std::int32_t unit = 1;   ///< elements of the dim that stay together
  std::int64_t size = -1;  ///< elements of the dim before any split; -1: all chunks are alike, the
                           ///< size follows from the local tensor (ShardingType::over)

  static constexpr AxisType replicate() { return {AxisKind::kReplicate}; }
  static constexpr AxisType invariant() { return {AxisKind::kInvariant}; }
  static constexpr AxisType varying() { return {AxisKind::kVarying}; }
  static constexpr AxisType partial() { return {AxisKind::kPartial}; }
  static constexpr AxisType shard(int dim, int unit = 1, int order = 0) {
    return {AxisKind::kShard, static_cast<std::int8_t>(dim), static_cast<std::uint8_t>(order),
            unit};
  }
  /// A Shard of a dim of `whole` elements: needed where the chunks are not all alike.
  constexpr AxisType of(std::int64_t whole) const {
    AxisType type = *this;
    type.size = whole;
    return type;
  }
  /// The type of the gradient: R <-> P, the others their own.
  constexpr AxisType dual() const {
    if (kind == AxisKind::kReplicate) return partial();
    if (kind == AxisKind::kPartial) return replicate();
    return *this;
  }
  bool operator==(const AxisType&) const = default;
};

/// "R", "I", "V", "P", "S(0)", "S(0 of 640, unit 64)", "S(0 of 8, order 1)".
std::string to_string(const AxisType& type);

/// A range [first, first + size).
struct ChunkRange {
  std::int64_t first = 0;
  std::int64_t size = 0;
  bool operator==(const ChunkRange&) const = default;
};

/// Chunk `index` of `parts` balanced chunks of `size` elements in whole units: the first
/// (units % parts) chunks hold one unit more; a last partial unit counts as a unit.
ChunkRange balanced_chunk(std::int64_t size, std::int64_t unit, int parts, int index);

/// A tensor's type on every axis of a mesh. Without axes (a single process) nothing is checked.
class ShardingType {
 public:
  /// No mesh.
  ShardingType() = default;
  /// Invariant on every axis. `axes` comes from Context::intern_axes and outlives the type.
  explicit ShardingType(const AxisTable* axes) : axes_(axes) {}
  /// `type` on every axis.
  ShardingType(const AxisTable* axes, AxisType type);

  const AxisTable* axes() const { return axes_; }
  int count() const { return axes_ == nullptr ? 0 : axes_->count(); }
  const AxisType& operator[](AxisId axis) const { return types_[static_cast<std::size_t>(axis)]; }
  AxisType& operator[](AxisId axis) { return types_[static_cast<std::size_t>(axis)]; }
  /// A copy with one axis changed.
  ShardingType with(AxisId axis, AxisType type) const;
  /// The type of the gradient on every axis.
  ShardingType dual() const;
  /// This rank's range of a dim of `size` elements: the successive splits of all axes that shard
  /// it, outermost first, each cutting the chunk of the one before.
  ChunkRange range(int dim, std::int64_t size) const;
  /// The type of a tensor whose local shape is `local`: sizes that were left open are filled in.
  /// Throws Error{kShardingType} where a split dim does not exist, the orders of its splits are not
  /// 0, 1, ..., or the local size is not this rank's chunk.
  ShardingType over(const Shape& local) const;
  bool operator==(const ShardingType& other) const;

 private:
  const AxisTable* axes_ = nullptr;
  std::array<AxisType, kMaxAxes> types_{};
};

/// "dp: S(0), tp: I", or "no mesh".
std::string to_string(const ShardingType& type);

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// A mesh: the ranks as a product of atomic axes, the last axis fastest. Names such as "dp" are
// ordered tuples of atomic axes. There is one communicator per tuple in use, split in a fixed order
// from the parent.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/context.hpp"
#include "tessera/core/sharding.hpp"

namespace tessera::spmd {

struct AxisSpec {
  std::string name;
  int size = 1;
};

/// A name for an ordered tuple of atomic axes, outermost first.
struct AxisGroup {
  std::string name;
  std::vector<std::string> axes;
};

class Mesh {
 public:
  /// Collective over `world`, whose size must be the product of the axis sizes (kConfig error that
  /// names the numbers). Every atomic axis is also a group of its own name. Communicators of all
  /// groups, and of `world` whole, are made here, in the order given.
  Mesh(Context& context, std::shared_ptr<comm::Communicator> world, std::span<const AxisSpec> axes,
       std::span<const AxisGroup> groups = {});

  Context& context() const { return *context_; }
  /// The atomic axes with this rank's coordinates; sharding types point to it.
  const AxisTable* axes() const { return axes_; }
  const std::shared_ptr<comm::Communicator>& world() const { return world_; }
  /// Id of an atomic axis; kInvalidArgument error that lists the axes.
  AxisId axis(std::string_view name) const;
  /// Atomic axes of a group (or of the single axis of that name), outermost first.
  const std::vector<AxisId>& group(std::string_view name) const;
  /// The communicator of a group: the ranks that differ from this one in the group's axes only, the
  /// group's last axis fastest. Size 1 gives a "self" communicator.
  const std::shared_ptr<comm::Communicator>& communicator(std::string_view group) const;
  /// Ranks in a group.
  int size(std::string_view group) const;
  /// A type that is Invariant on every axis.
  ShardingType invariant() const { return ShardingType(axes_); }
  /// A type on this mesh with `type` on every axis of a group; a Shard takes the axes as successive
  /// splits, outermost first.
  ShardingType type(std::string_view group, AxisType type) const;
  /// The same on top of another type.
  ShardingType with(ShardingType base, std::string_view group, AxisType type) const;

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<comm::Communicator> world_;
  const AxisTable* axes_ = nullptr;
  struct Group {
    std::string name;
    std::vector<AxisId> axes;
    std::shared_ptr<comm::Communicator> communicator;
  };
  const Group& find(std::string_view name) const;
  std::vector<Group> groups_;
};

}  // namespace tessera::spmd

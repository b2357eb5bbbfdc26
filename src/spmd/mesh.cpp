// SPDX-License-Identifier: Apache-2.0
#include "tessera/spmd/mesh.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::spmd {
namespace {

std::string describe(std::span<const AxisSpec> axes) {
  std::string out;
  for (const AxisSpec& axis : axes) {
    out += fmt::format("{}{} {}", out.empty() ? "" : " x ", axis.name, axis.size);
  }
  return out;
}

/// Splits `world` into the ranks that agree on every axis outside `axes`.
std::shared_ptr<comm::Communicator> split(comm::Communicator& world, const AxisTable& table,
                                          const std::vector<AxisId>& axes) {
  int color = 0;
  for (AxisId axis = 0; axis < table.count(); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
    const auto& info = table.axes[static_cast<std::size_t>(axis)];
    color = color * info.size + info.coordinate;
  }
  int key = 0;
  for (const AxisId axis : axes) {
    const auto& info = table.axes[static_cast<std::size_t>(axis)];
    key = key * info.size + info.coordinate;
  }
  return world.split(color, key);
}

}  // namespace

Mesh::Mesh(Context& context, std::shared_ptr<comm::Communicator> world,
           std::span<const AxisSpec> axes, std::span<const AxisGroup> groups)
    : context_(context.shared_from_this()), world_(std::move(world)) {
  int product = 1;
  for (const AxisSpec& axis : axes) {
    if (axis.size < 1) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("mesh axis {} has size {}; sizes start at 1", axis.name, axis.size));
    }
    product *= axis.size;
  }
  if (product != world_->size()) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("the mesh {} needs {} ranks, but {} are running; change an axis or start "
                    "{} ranks",
                    describe(axes), product, world_->size(), product));
  }
  AxisTable table;
  int stride = product;
  for (const AxisSpec& axis : axes) {
    if (table.find(axis.name) >= 0) {
      throw Error(ErrorCode::kConfig, fmt::format("mesh axis {} is named twice", axis.name));
    }
    stride /= axis.size;
    table.axes.push_back({axis.name, axis.size, world_->rank() / stride % axis.size});
  }
  axes_ = context.intern_axes(table);
  for (AxisId axis = 0; axis < axes_->count(); ++axis) {
    groups_.push_back({axes_->axes[static_cast<std::size_t>(axis)].name, {axis}, nullptr});
  }
  for (const AxisGroup& group : groups) {
    Group made{group.name, {}, nullptr};
    for (const std::string& name : group.axes) made.axes.push_back(axis(name));
    groups_.push_back(std::move(made));
  }
  for (Group& group : groups_) {
    group.communicator = split(*world_, *axes_, group.axes);
    group.communicator->set_label(group.name);  // for messages and traces
  }
}

AxisId Mesh::axis(std::string_view name) const {
  const AxisId id = axes_->find(name);
  if (id < 0) {
    std::string known;
    for (const auto& axis : axes_->axes) known += (known.empty() ? "" : ", ") + axis.name;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the mesh has no axis \"{}\"; its axes are {}", name, known));
  }
  return id;
}

const Mesh::Group& Mesh::find(std::string_view name) const {
  for (const Group& group : groups_) {
    if (group.name == name) return group;
  }
  std::string known;
  for (const Group& group : groups_) known += (known.empty() ? "" : ", ") + group.name;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the mesh has no group \"{}\"; its groups are {}", name, known));
}

const std::vector<AxisId>& Mesh::group(std::string_view name) const { return find(name).axes; }

const std::shared_ptr<comm::Communicator>& Mesh::communicator(std::string_view group) const {
  return find(group).communicator;
}

int Mesh::size(std::string_view group) const { return find(group).communicator->size(); }

ShardingType Mesh::type(std::string_view group, AxisType type) const {
  return with(invariant(), group, type);
}

ShardingType Mesh::with(ShardingType base, std::string_view group, AxisType type) const {
  for (const AxisId axis : find(group).axes) {
    base[axis] = type;
    if (type.kind == AxisKind::kShard) ++type.order;
  }
  return base;
}

}  // namespace tessera::spmd

// SPDX-License-Identifier: Apache-2.0
#include "tessera/spmd/collectives.hpp"

#include <fmt/format.h>

#include <vector>

#include "tessera/autograd/op.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::spmd {
namespace {

using autograd::DeclaredType;
using autograd::Gradients;
using autograd::Op;
using autograd::OpSide;
using autograd::Variable;

/// One group of a mesh, with the arithmetic of its splits.
struct Group {
  const Mesh& mesh;
  std::string_view name;
  comm::Communicator& communicator;
  std::vector<int> sizes;  ///< of its axes, outermost first

  Group(const Mesh& m, std::string_view n) : mesh(m), name(n), communicator(*m.communicator(n)) {
    for (const AxisId axis : m.group(n)) {
      sizes.push_back(m.axes()->axes[static_cast<std::size_t>(axis)].size);
    }
  }

  /// Rank `rank`'s range of a dim: each axis cuts the chunk of the axis before.
  ChunkRange chunk(std::int64_t size, std::int64_t unit, int rank) const {
    ChunkRange range{0, size};
    int below = communicator.size();
    for (const int axis_size : sizes) {
      below /= axis_size;
      const ChunkRange inner =
          balanced_chunk(range.size, unit, axis_size, rank / below % axis_size);
      range = {range.first + inner.first, inner.size};
    }
    return range;
  }
  ChunkRange own(std::int64_t size, std::int64_t unit) const {
    return chunk(size, unit, communicator.rank());
  }
};

Tensor all_reduced(const Tensor& value, const Group& group) {
  Tensor copy = ops::copy(value);
  group.communicator.all_reduce(copy).wait();
  return copy;
}

/// Elements of every rank's piece when a tensor of `global` shape is cut along `dim`.
std::vector<std::int64_t> piece_counts(const Shape& global, int dim, std::int64_t unit,
                                       const Group& group) {
  const std::int64_t row = global[dim] == 0 ? 0 : global.numel() / global[dim];
  std::vector<std::int64_t> counts;
  for (int r = 0; r < group.communicator.size(); ++r) {
    counts.push_back(row * group.chunk(global[dim], unit, r).size);
  }
  return counts;
}

Shape with_dim(Shape shape, int dim, std::int64_t size) {
  shape[dim] = size;
  return shape;
}

/// Pieces along `dim` as one buffer, rank after rank; the inverse of unpack.
Tensor pack(const Tensor& whole, int dim, std::int64_t unit, const Group& group) {
  if (dim == 0) return ops::contiguous(whole);
  const Tensor flat = Tensor::empty(whole.context(), {whole.numel()}, whole.dtype(),
                                    MemoryCategory::kCommunication);
  std::int64_t first = 0;
  for (int r = 0; r < group.communicator.size(); ++r) {
    const ChunkRange chunk = group.chunk(whole.shape()[dim], unit, r);
    const Tensor piece = whole.narrow(dim, chunk.first, chunk.size);
    ops::copy_into(flat.narrow(0, first, piece.numel()).reshape(piece.shape()), piece);
    first += piece.numel();
  }
  return flat;
}

Tensor unpack(const Tensor& flat, const Shape& global, int dim, std::int64_t unit,
              const Group& group) {
  if (dim == 0) return flat.reshape(global);
  const Tensor whole = Tensor::empty(flat.context(), global, flat.dtype());
  std::int64_t first = 0;
  for (int r = 0; r < group.communicator.size(); ++r) {
    const ChunkRange chunk = group.chunk(global[dim], unit, r);
    const Tensor piece = whole.narrow(dim, chunk.first, chunk.size);
    ops::copy_into(piece, flat.narrow(0, first, piece.numel()).reshape(piece.shape()));
    first += piece.numel();
  }
  return whole;
}

Tensor all_gathered(const Tensor& local, const Shape& global, int dim, std::int64_t unit,
                    const Group& group) {
  const std::vector<std::int64_t> counts = piece_counts(global, dim, unit, group);
  const Tensor flat = Tensor::empty(local.context(), {global.numel()}, local.dtype());
  group.communicator.all_gather(ops::contiguous(local), flat, counts).wait();
  return unpack(flat, global, dim, unit, group);
}

Tensor reduce_scattered(const Tensor& whole, int dim, std::int64_t unit, const Group& group) {
  const std::vector<std::int64_t> counts = piece_counts(whole.shape(), dim, unit, group);
  const Tensor local = Tensor::empty(
      whole.context(), with_dim(whole.shape(), dim, group.own(whole.shape()[dim], unit).size),
      whole.dtype());
  group.communicator
      .reduce_scatter(pack(whole, dim, unit, group), local, comm::ReduceOp::kSum, counts)
      .wait();
  return local;
}

Tensor own_slice(const Tensor& whole, int dim, std::int64_t unit, const Group& group) {
  const ChunkRange own = group.own(whole.shape()[dim], unit);
  return ops::contiguous(whole.narrow(dim, own.first, own.size));
}

Tensor padded(const Tensor& local, const Shape& global, int dim, std::int64_t unit,
              const Group& group) {
  const Tensor whole = Tensor::zeros(local.context(), global, local.dtype());
  const ChunkRange own = group.own(global[dim], unit);
  ops::copy_into(whole.narrow(dim, own.first, own.size), local);
  return whole;
}

Tensor kept_on_one(const Tensor& value, const Group& group) {
  if (group.communicator.rank() == 0) return value;
  return Tensor::zeros(value.context(), value.shape(), value.dtype());
}

/// S(i) -> S(j): the local tensor, whole in j, is cut along j; pieces of i come back.
Tensor all_to_all(const Tensor& local, const Shape& global, AxisType from, AxisType to,
                  const Group& group) {
  std::vector<std::int64_t> send;
  std::vector<std::int64_t> receive;
  const std::int64_t own_from = group.own(global[from.dim], from.unit).size;
  const std::int64_t own_to = group.own(global[to.dim], to.unit).size;
  std::int64_t others = 1;
  for (int d = 0; d < global.rank(); ++d) {
    if (d != from.dim && d != to.dim) others *= global[d];
  }
  for (int r = 0; r < group.communicator.size(); ++r) {
    send.push_back(others * own_from * group.chunk(global[to.dim], to.unit, r).size);
    receive.push_back(others * own_to * group.chunk(global[from.dim], from.unit, r).size);
  }
  const Shape result = with_dim(with_dim(global, to.dim, own_to), from.dim, global[from.dim]);
  const Tensor flat = Tensor::empty(local.context(), {result.numel()}, local.dtype());
  group.communicator.all_to_all(pack(local, to.dim, to.unit, group), flat, send, receive).wait();
  return unpack(flat, result, from.dim, from.unit, group);
}

[[noreturn]] void reject(const Group& group, const AxisType& from, const AxisType& to,
                         const char* why) {
  throw Error(
      ErrorCode::kShardingType,
      fmt::format("convert on mesh group {}: {} -> {} {}. The conversions are I->R R->I S->R "
                  "S->I P->R P->I P->S S(i)->S(j) I->S R->S R->P V->P",
                  group.name, to_string(from), to_string(to), why));
}

/// The one type that all axes of the group have (a split over several axes taken as one).
AxisType common_type(const ShardingType& type, const Group& group) {
  const std::vector<AxisId>& axes = group.mesh.group(group.name);
  const AxisType first = type[axes.front()];
  for (std::size_t i = 0; i < axes.size(); ++i) {
    AxisType expected = first;
    if (first.kind == AxisKind::kShard) {
      expected.order = static_cast<std::uint8_t>(first.order + i);
    }
    if (type[axes[i]] != expected)
      reject(group, first, type[axes[i]], "needs one type on all axes");
  }
  return first;
}

struct Conversion {
  Group group;
  AxisType from;
  AxisType to;
  Shape global;  ///< of the group: the shape with the split dims whole

  Tensor forward(const Tensor& x) const { return move(x, from, to); }
  /// The gradient moves from the dual of `to` to the dual of `from`.
  Tensor backward(const Tensor& dy) const { return move(dy, to.dual(), from.dual()); }

  Tensor move(const Tensor& x, const AxisType& a, const AxisType& b) const {
    using enum AxisKind;
    if (a == b) return x;
    const bool to_whole = b.kind == kReplicate || b.kind == kInvariant;
    if (a.kind == kPartial && to_whole) return all_reduced(x, group);
    if (a.kind == kPartial && b.kind == kShard) return reduce_scattered(x, b.dim, b.unit, group);
    if (a.kind == kShard && to_whole) return all_gathered(x, global, a.dim, a.unit, group);
    if (a.kind == kShard && b.kind == kShard) return all_to_all(x, global, a, b, group);
    // A slice's gradient is zero elsewhere; a shard read as one term of a sum.
    if (a.kind == kShard && b.kind == kPartial) return padded(x, global, a.dim, a.unit, group);
    if (b.kind == kShard) return own_slice(x, b.dim, b.unit, group);
    if (b.kind == kPartial && a.kind != kVarying) return kept_on_one(x, group);
    return x;  // I<->R, V->P, R->V
  }
};

bool is_allowed(const AxisType& a, const AxisType& b) {
  using enum AxisKind;
  switch (a.kind) {
    case kInvariant:
      return b.kind == kReplicate || b.kind == kShard;
    case kReplicate:
      return b.kind == kInvariant || b.kind == kShard || b.kind == kPartial;
    case kShard:
      return b.kind == kReplicate || b.kind == kInvariant || (b.kind == kShard && b.dim != a.dim);
    case kPartial:
      return b.kind == kReplicate || b.kind == kInvariant || b.kind == kShard;
    case kVarying:
      return b.kind == kPartial;
  }
  return false;
}

/// Number of axes that split a dim.
int splits(const ShardingType& type, int dim) {
  int count = 0;
  for (AxisId axis = 0; axis < type.count(); ++axis) {
    if (type[axis].kind == AxisKind::kShard && type[axis].dim == dim) ++count;
  }
  return count;
}

}  // namespace

Variable convert(const Variable& x, const Mesh& mesh, std::string_view group_name, AxisType to) {
  const Group group(mesh, group_name);
  TESSERA_CHECK(x.type().axes() == mesh.axes(),
                "convert: the operand is typed on [{}], not on this mesh", to_string(x.type()));
  const AxisType from = common_type(x.type(), group);
  if (!is_allowed(from, to)) reject(group, from, to, "is not a conversion");
  ShardingType others = x.type();  // without the splits of this group
  for (const AxisId axis : mesh.group(group_name)) others[axis] = AxisType::invariant();
  Conversion conversion{group, from, to, x.shape()};
  if (from.kind == AxisKind::kShard) {
    if (from.order != splits(others, from.dim)) {
      reject(group, from, to, "has splits inside it; undo the innermost first");
    }
    conversion.global[from.dim] = others.range(from.dim, from.size).size;
  }
  if (to.kind == AxisKind::kShard) {
    TESSERA_CHECK(to.dim >= 0 && to.dim < x.rank(), "convert: {} is not a dim of {}", to.dim,
                  x.shape().to_string());
    to.order = static_cast<std::uint8_t>(splits(others, to.dim));
    to.size = to.order == 0 ? x.shape()[to.dim] : -1;  // else the outer splits know it
    conversion.to = to;
  }
  Op op("convert", {x}, DeclaredType{mesh.with(x.type(), group_name, to)}, OpSide::kConversion);
  op.gradient({0}, [conversion](Gradients& g) { g.add(0, conversion.backward(g.dy())); });
  return op.output(conversion.forward(x.value()));
}

Tensor reduce_value(const Tensor& value, const Mesh& mesh, std::string_view group) {
  return all_reduced(value, Group(mesh, group));
}

namespace {

std::uint64_t hash_tensor(const Tensor& value) {
  const Tensor dense = ops::contiguous(value);
  const auto* bytes = static_cast<const unsigned char*>(dense.raw());
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (std::size_t i = 0; i < dense.bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
  return hash;
}

void compare_replicas(const Mesh& mesh, OpPhase phase, std::string_view op, const Tensor& value,
                      const ShardingType& type) {
  if (type.axes() != mesh.axes()) return;
  for (AxisId axis = 0; axis < type.count(); ++axis) {
    const AxisKind kind = type[axis].kind;
    const auto& info = type.axes()->axes[static_cast<std::size_t>(axis)];
    if ((kind != AxisKind::kReplicate && kind != AxisKind::kInvariant) || info.size == 1) continue;
    comm::Communicator& communicator = *mesh.communicator(info.name);
    const std::vector<std::int64_t> mine{static_cast<std::int64_t>(hash_tensor(value))};
    const Tensor all =
        Tensor::empty(mesh.context(), {info.size}, DType::kI64, MemoryCategory::kCommunication);
    communicator.all_gather(Tensor::from(mesh.context(), {1}, mine), all).wait();
    const std::vector<std::int64_t> hashes = all.to_vector<std::int64_t>();
    for (int r = 1; r < info.size; ++r) {
      if (hashes[static_cast<std::size_t>(r)] == hashes[0]) continue;
      throw Error(
          ErrorCode::kShardingType,
          fmt::format("{}: the {} is {} on mesh axis {}, but the ranks at coordinates 0 and {} "
                      "hold different values",
                      op, phase == OpPhase::kForward ? "output" : "gradient", to_string(type[axis]),
                      info.name, r));
    }
  }
}

}  // namespace

ReplicaCheckScope::ReplicaCheckScope(const Mesh& mesh)
    : mesh_(mesh),
      token_(mesh.context().add_observer(
          [&mesh](OpPhase phase, std::string_view op, const Tensor& value,
                  const ShardingType& type) { compare_replicas(mesh, phase, op, value, type); })) {}

ReplicaCheckScope::~ReplicaCheckScope() { mesh_.context().remove_observer(token_); }

}  // namespace tessera::spmd

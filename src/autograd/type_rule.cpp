// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/type_rule.hpp"

#include <fmt/format.h>

namespace tessera::autograd {
namespace {

/// A replicated or invariant operand that takes no gradient serves as either.
bool is_flexible(const Variable& operand, AxisKind kind) {
  return !operand.takes_gradient() &&
         (kind == AxisKind::kReplicate || kind == AxisKind::kInvariant);
}

struct Inference {
  const char* op;
  std::span<const Variable> operands;
  const TypeRule& rule;

  [[noreturn]] void reject(AxisId axis, const std::string& why, const std::string& fix) const {
    const auto& info = operands[0].type().axes()->axes[static_cast<std::size_t>(axis)];
    std::string types;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      types += fmt::format("{}{}{}", i == 0 ? "" : ", ", to_string(operands[i].type()[axis]),
                           operands[i].name().empty() ? "" : " (" + operands[i].name() + ")");
    }
    throw Error(ErrorCode::kShardingType,
                fmt::format("{}: on mesh axis {} (size {}) the operands are {}: {}. {}", op,
                            info.name, info.size, types, why, fix));
  }

  AxisType partial(AxisId axis) const {
    int partials = 0;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const AxisKind kind = operands[i].type()[axis].kind;
      if (kind == AxisKind::kPartial) {
        ++partials;
        if (!rule.is_jointly_linear && (rule.linear & (1U << i)) == 0) {
          reject(axis, fmt::format("the op is not linear in operand {}, a sum still pending", i),
                 "Reduce it first: all_reduce (P->R or P->I) or reduce_scatter (P->S)");
        }
      } else if (rule.is_jointly_linear) {
        reject(axis,
               "a pending sum (P) adds only to another; anything else would be counted once "
               "per rank",
               "Reduce the P operand first (P->R, P->I or P->S), or add after the reduction");
      } else if (kind != AxisKind::kReplicate && !is_flexible(operands[i], kind)) {
        reject(axis, "P times anything but R is not the whole product",
               "Reduce the P operand first: all_reduce (P->R or P->I) or reduce_scatter (P->S)");
      }
    }
    if (partials > 1 && !rule.is_jointly_linear) {
      reject(axis, "the product of two pending sums is not the sum of products",
             "Reduce one of them first: all_reduce (P->R or P->I)");
    }
    return AxisType::partial();
  }

  AxisType invariant(AxisId axis) const {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const AxisKind kind = operands[i].type()[axis].kind;
      if (kind != AxisKind::kInvariant && !is_flexible(operands[i], kind)) {
        reject(
            axis, "I (one computation that every rank repeats) meets an operand that is not I",
            "Convert the I operand where it meets the other: I->R (identity forward, all-reduce "
            "of its gradient), or I->S (take the own slice). For parameters on a data axis, wrap "
            "the model with parallel::Ddp");
      }
    }
    return AxisType::invariant();
  }

  /// The unit of an operand's split, in what all operands have in common; 0 if it cuts a group.
  std::int32_t common_unit(std::size_t operand, const AxisType& type) const {
    const std::int32_t group = rule.group[operand];
    if (group == 1 || rule.inputs[operand][type.dim] != rule.grouped) return type.unit;
    return type.unit % group == 0 ? type.unit / group : 0;
  }

  /// The size of the whole of a split dim, in what all operands have in common.
  std::int64_t common_size(std::size_t operand, const AxisType& type) const {
    const bool is_group = rule.inputs[operand][type.dim] == rule.grouped;
    return is_group ? type.size / rule.group[operand] : type.size;
  }

  /// The result for one S operand; checks the others against it. None is P or I with a gradient.
  AxisType sharded(AxisId axis, std::size_t first) const {
    const AxisType shard = operands[first].type()[axis];
    const std::int8_t label = rule.inputs[first][shard.dim];
    if (label == DimLabels::kBroadcast) {
      reject(axis,
             fmt::format("dim {} of operand {} has size 1 here and is broadcast", shard.dim, first),
             "Gather it first: all_gather (S->R)");
    }
    if ((rule.whole & (1U << label)) != 0) {
      reject(axis, fmt::format("the op needs dim {} of operand {} whole", shard.dim, first),
             "Gather it first: all_gather (S->R), or move the split to another dim: all_to_all "
             "(S(i)->S(j))");
    }
    bool has_varying = false;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const AxisType type = operands[i].type()[axis];
      const int dim = rule.inputs[i].find(label);
      if (type.kind == AxisKind::kVarying) {
        has_varying = true;
      } else if (type.kind == AxisKind::kShard) {
        if (dim != type.dim || type.order != shard.order) {
          reject(axis, "the operands are split differently",
                 "Bring them to one split: all_to_all (S(i)->S(j)) or all_gather (S->R)");
        }
        const std::int32_t unit = common_unit(i, type);
        if (i != first && (unit == 0 || unit != common_unit(first, shard))) {
          reject(axis,
                 fmt::format("operand {} is split in units that do not belong to those of operand "
                             "{}",
                             i, first),
                 "Give both placements units that hold the same whole groups, or gather: "
                 "all_gather (S->R)");
        }
        if (common_size(i, type) != common_size(first, shard)) {
          reject(axis,
                 fmt::format("operand {} is a chunk of a dim of another size than operand {}'s", i,
                             first),
                 "Pieces of different wholes do not belong together; gather them: all_gather "
                 "(S->R)");
        }
      } else if (dim >= 0 && (rule.singles[i] & (1U << dim)) == 0) {
        reject(axis, fmt::format("operand {} has the dim that is split elsewhere, but whole", i),
               "Take its own slice: I->S or R->S, or gather the split one: all_gather (S->R)");
      }
    }
    if (has_varying) return AxisType::varying();
    const int dim = rule.output.find(label);
    return dim < 0 ? AxisType::partial()
                   : AxisType::shard(dim, shard.unit, shard.order).of(shard.size);
  }

  AxisType infer(AxisId axis) const {
    bool any_partial = false;
    bool any_invariant = false;
    bool any_varying = false;
    bool all_flexible = true;
    bool all_invariant = true;
    std::size_t shard = operands.size();
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const AxisKind kind = operands[i].type()[axis].kind;
      const bool flexible = is_flexible(operands[i], kind);
      all_flexible = all_flexible && flexible;
      all_invariant = all_invariant && kind == AxisKind::kInvariant;
      any_partial = any_partial || kind == AxisKind::kPartial;
      any_varying = any_varying || kind == AxisKind::kVarying;
      any_invariant = any_invariant || (kind == AxisKind::kInvariant && !flexible);
      if (kind == AxisKind::kShard && shard == operands.size()) shard = i;
    }
    if (all_invariant) return AxisType::invariant();
    if (all_flexible) return AxisType::replicate();
    if (any_partial) return partial(axis);
    if (any_invariant) return invariant(axis);
    if (shard != operands.size()) return sharded(axis, shard);
    return any_varying ? AxisType::varying() : AxisType::replicate();
  }
};

}  // namespace

DimLabels labels_of(int rank, int first) {
  DimLabels labels;
  for (int i = 0; i < rank; ++i) labels.push_back(first + i);
  return labels;
}

TypeRule elementwise_rule(int rank) {
  return TypeRule().input(labels_of(rank)).result(labels_of(rank));
}

TypeRule elementwise_linear_rule(int rank) { return elementwise_rule(rank).linear_in(0); }

namespace {

/// Two operands broadcast from the right.
TypeRule broadcast_rule(const Shape& a, const Shape& b) {
  const int rank = a.rank() > b.rank() ? a.rank() : b.rank();
  const auto labels = [rank](const Shape& shape, const Shape& other) {
    DimLabels out;
    for (int i = 0; i < shape.rank(); ++i) {
      const int from_end = shape.rank() - 1 - i;
      const bool repeats = shape[i] == 1 && from_end < other.rank() && other.back(from_end) != 1;
      out.push_back(repeats ? DimLabels::kBroadcast : rank - 1 - from_end);
    }
    return out;
  };
  const auto singles = [](const Shape& shape) {
    std::uint8_t bits = 0;
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] == 1) bits = static_cast<std::uint8_t>(bits | (1U << i));
    }
    return bits;
  };
  TypeRule rule = TypeRule().input(labels(a, b)).input(labels(b, a)).result(labels_of(rank));
  rule.singles[0] = singles(a);  // a whole dim of size 1 repeats beside a split one
  rule.singles[1] = singles(b);
  return rule;
}

}  // namespace

TypeRule broadcast_sum_rule(const Shape& a, const Shape& b) {
  return broadcast_rule(a, b).jointly_linear();
}

TypeRule broadcast_product_rule(const Shape& a, const Shape& b) {
  return broadcast_rule(a, b).linear_in(0).linear_in(1);
}

ShardingType infer_type(const char* op, std::span<const Variable> operands, const TypeRule& rule) {
  const AxisTable* axes = operands[0].type().axes();
  for (std::size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].type().axes() != axes) {
      throw Error(ErrorCode::kShardingType,
                  fmt::format("{}: operand 0 is typed on [{}] but operand {} on [{}]; give every "
                              "leaf its type on the same mesh when it is made",
                              op, to_string(operands[0].type()), i, to_string(operands[i].type())));
    }
  }
  ShardingType result(axes);
  const Inference inference{op, operands, rule};
  for (AxisId axis = 0; axis < result.count(); ++axis) result[axis] = inference.infer(axis);
  return result;
}

ShardingType invariant_like(const Variable& like) { return ShardingType(like.type().axes()); }

}  // namespace tessera::autograd

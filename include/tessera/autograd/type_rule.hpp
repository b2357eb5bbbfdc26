// SPDX-License-Identifier: Apache-2.0
// Sharding-type rules of local operations, as an einsum over named dims. An op names every dim of
// its operands and its result with a small label; the rule says which labels the op needs whole and
// in which operands it is linear. The type of the result on every mesh axis follows (or an error
// that names the op, the axis, the operand types and the conversions that would fix it):
//   all I -> I; all R -> R; R with V or S -> V or S
//   S on a label: every operand that has the label is sharded alike on it, the others are R;
//   the label is in the result -> S there; it is contracted -> P (never beside a P operand)
//   P through an operand in which the op is linear, the others R -> P; jointly linear: all P -> P
//   everything else is an error. An operand that takes no gradient may be I or R as needed.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "tessera/autograd/variable.hpp"
#include "tessera/core/sharding.hpp"

namespace tessera::autograd {

/// One label per dim. Equal labels are the same dim; kBroadcast marks a size-1 dim that repeats.
struct DimLabels {
  static constexpr std::int8_t kBroadcast = -1;
  std::array<std::int8_t, kMaxRank> label{};
  int rank = 0;

  DimLabels() = default;
  DimLabels(std::initializer_list<int> labels) {
    for (const int l : labels) push_back(l);
  }
  void push_back(int l) { label[static_cast<std::size_t>(rank++)] = static_cast<std::int8_t>(l); }
  std::int8_t operator[](int dim) const { return label[static_cast<std::size_t>(dim)]; }
  /// The dim that carries a label, or -1.
  int find(int l) const {
    for (int i = 0; i < rank; ++i) {
      if (label[static_cast<std::size_t>(i)] == l) return i;
    }
    return -1;
  }
};

struct TypeRule {
  static constexpr int kMaxInputs = 6;
  std::array<DimLabels, kMaxInputs> inputs{};
  int input_count = 0;
  DimLabels output;
  std::uint32_t whole = 0;         ///< bit l: label l must not be sharded
  std::uint32_t linear = 0;        ///< bit i: the op is linear in operand i
  bool is_jointly_linear = false;  ///< linear in all operands together (a sum of them)
  std::array<std::uint8_t, kMaxInputs> singles{};  ///< bit d: dim d of the operand has size 1 and
                                                   ///< repeats where another's is longer

  int grouped = -1;  ///< label that an operand may split in groups: its unit is that of the other
                     ///< operands times its group (query heads per key head)
  std::array<std::int32_t, kMaxInputs> group{1, 1, 1, 1, 1, 1};

  TypeRule& input(const DimLabels& labels) {
    inputs[static_cast<std::size_t>(input_count++)] = labels;
    return *this;
  }
  TypeRule& result(const DimLabels& labels) {
    output = labels;
    return *this;
  }
  TypeRule& needs_whole(int label) {
    whole |= 1U << label;
    return *this;
  }
  TypeRule& linear_in(int operand) {
    linear |= 1U << operand;
    return *this;
  }
  TypeRule& grouped_in(int operand, int label, std::int64_t size) {
    grouped = label;
    group[static_cast<std::size_t>(operand)] = static_cast<std::int32_t>(size);
    return *this;
  }
  TypeRule& jointly_linear() {
    is_jointly_linear = true;
    return *this;
  }
};

/// Labels 0, 1, ... rank-1.
DimLabels labels_of(int rank, int first = 0);

/// A function of each element of one operand.
TypeRule elementwise_rule(int rank);
/// The same for a linear function (scale, cast).
TypeRule elementwise_linear_rule(int rank);
/// A sum of two operands broadcast from the right.
TypeRule broadcast_sum_rule(const Shape& a, const Shape& b);
/// The same for a product.
TypeRule broadcast_product_rule(const Shape& a, const Shape& b);

/// The result's type. `op` is for messages. Throws Error{kShardingType}.
ShardingType infer_type(const char* op, std::span<const Variable> operands, const TypeRule& rule);

/// A result type that an op with collectives inside, or a change of dims, computes by itself.
struct DeclaredType {
  ShardingType type;
};

/// The type on the same mesh of a value that is all I: for constants beside `like`.
ShardingType invariant_like(const Variable& like);

}  // namespace tessera::autograd

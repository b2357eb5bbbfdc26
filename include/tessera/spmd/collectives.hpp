// SPDX-License-Identifier: Apache-2.0
// Typed differentiable collectives: the only operations that change a sharding type. Forward and
// backward of each conversion (a gradient has the dual type):
//   I->R  identity       | all-reduce            R->I  identity       | keep on one rank
//   S->R  all-gather     | reduce-scatter        S->I  all-gather     | own slice
//   P->R  all-reduce     | all-reduce            P->I  all-reduce     | identity
//   P->S  reduce-scatter | all-gather            S(i)->S(j) all-to-all| all-to-all
//   I->S  own slice      | all-gather            R->S  own slice      | pad with zeros
//   R->P  keep on one    | keep on one           V->P  reinterpret    | reinterpret
#pragma once

#include <string_view>

#include "tessera/autograd/variable.hpp"
#include "tessera/spmd/mesh.hpp"

namespace tessera::spmd {

/// x with its type on every atomic axis of `group` changed to `to`. The axes of the group must have
/// one kind before; a dim split over several axes counts as split outermost first. A new split of a
/// dim that other axes split already is its innermost, and only innermost splits can be undone.
/// Chunks need not be alike: the type of x knows the size of the whole. A conversion that is not in
/// the table is Error{kShardingType}.
autograd::Variable convert(const autograd::Variable& x, const Mesh& mesh, std::string_view group,
                           AxisType to);

/// The sum of a P tensor over `group` outside the graph, for metrics and counts. In place on a
/// copy.
Tensor reduce_value(const Tensor& value, const Mesh& mesh, std::string_view group);

/// While it lives, every op's output and gradient that is R or I on an axis is hashed and compared
/// over the axis;
/// the first difference is Error{kShardingType} that names op, axis and ranks. Costs a message per
/// op: for debugging.
class ReplicaCheckScope {
 public:
  explicit ReplicaCheckScope(const Mesh& mesh);
  ~ReplicaCheckScope();
  ReplicaCheckScope(const ReplicaCheckScope&) = delete;
  ReplicaCheckScope& operator=(const ReplicaCheckScope&) = delete;

 private:
  const Mesh& mesh_;
  int token_;
};

}  // namespace tessera::spmd

// SPDX-License-Identifier: Apache-2.0
// Where a parameter lives: its global shape, its sharding type on every axis, and the pipeline
// stages that hold it. It drives initialisation, the gradient norm, weight decay, checkpoints and
// reports; nothing else may say who owns what.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/core/random.hpp"
#include "tessera/core/sharding.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::spmd {

struct Placement {
  Shape global_shape;
  ShardingType type;           ///< at rest: I or S on every axis
  std::vector<int> stages{0};  ///< pipeline stages that hold it; the first one owns it in sums

  /// This rank's range of a dim.
  ChunkRange range(int dim) const { return type.range(dim, global_shape[dim]); }
  /// This rank's shape.
  Shape local_shape() const;
  /// This rank's first global coordinate of every dim.
  Shape local_offset() const;
  /// True when this rank counts the parameter in sums over the mesh: coordinate 0 on every axis on
  /// which it is not sharded.
  bool is_owner() const;
};

/// Fills `local` with normal numbers of `std` keyed by the *global* element index: the same global
/// tensor for every placement.
void fill_normal(const Tensor& local, const Placement& placement, RandomKey key, double std);

}  // namespace tessera::spmd

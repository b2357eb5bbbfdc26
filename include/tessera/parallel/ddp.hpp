// SPDX-License-Identifier: Apache-2.0
// Data parallelism: every rank holds all parameters and sees its own rows. Parameters are R on the
// data axes in the forward pass, so their gradients are P; over the micro-batches of a step they
// accumulate at the leaf, and once per step each bucket is reduced P->I, overlapped with the rest
// of backward. Buckets are bounded by size and filled in the reverse order of use; the sums are in
// rank order, so no bucket size and no timing changes a bit.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/nn/module.hpp"
#include "tessera/spmd/mesh.hpp"

namespace tessera::parallel {

struct DdpOptions {
  std::size_t bucket_bytes = std::size_t{4} << 20;
  DType reduce_dtype = DType::kF32;  ///< f64 gradients are always reduced in f64
};

class Ddp {
 public:
  /// Wraps `module`'s parameters for the mesh group `group`, before the first forward pass.
  /// Collective. Rank 0's initial values need not be sent: initialisation does not depend on the
  /// rank. kInvalidArgument where the module was built without the mesh's axes, or a parameter is
  /// not invariant on the group.
  Ddp(nn::Module& module, const spmd::Mesh& mesh, std::string group,
      const DdpOptions& options = {});
  ~Ddp();
  Ddp(const Ddp&) = delete;
  Ddp& operator=(const Ddp&) = delete;

  /// Before the backward pass of the step's last micro-batch: from then on a bucket whose gradients
  /// are all ready is reduced at once, while backward goes on. Without it the reductions only start
  /// in finish_step().
  void begin_last_backward();
  /// Reduces what is left (parameters that got no gradient here count as zero), waits, and sets
  /// every parameter's gradient to the sum (not the mean: a loss term is divided by its global
  /// weight) over the ranks, of type I. Once per step, in the same order on every rank; after it
  /// the optimizer's step and zero_grad(). kShardingType where gradients are reduced already,
  /// kInvalidArgument where there is none at all.
  void finish_step();
  /// Number of buckets.
  std::size_t bucket_count() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::parallel

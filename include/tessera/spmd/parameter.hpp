// SPDX-License-Identifier: Apache-2.0
// A trainable tensor of a module: variable, placement, and what the optimizer needs to know.
#pragma once

#include <memory>
#include <string>

#include "tessera/autograd/variable.hpp"
#include "tessera/spmd/placement.hpp"

namespace tessera::spmd {

enum class WeightDecay { kNo, kYes };

struct Parameter {
  std::string name;  ///< qualified by the module tree, e.g. "blocks.0.attention.qkv.weight"
  autograd::Variable variable;
  Placement placement;
  WeightDecay decay = WeightDecay::kYes;  ///< matrices decay; biases, norms do not

  /// Type of the variable in the forward pass; a data-parallel wrapper makes it R on its axes.
  void set_compute_type(const ShardingType& type) { variable.state()->type = type; }
};

using ParameterPtr = std::shared_ptr<Parameter>;

}  // namespace tessera::spmd

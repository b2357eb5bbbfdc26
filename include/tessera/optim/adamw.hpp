// SPDX-License-Identifier: Apache-2.0
// The AdamW optimizer (arXiv 1711.05101): owns the moments of the parameters it is given.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/spmd/parameter.hpp"

namespace tessera::optim {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  ///< for parameters that decay; others get 0
  /// kConfig errors: betas outside [0, 1), eps or weight decay negative.
  void validate() const;
};

class AdamW {
 public:
  AdamW(std::vector<spmd::ParameterPtr> parameters, const AdamWConfig& config);

  /// One update of every parameter that has a gradient; `grad_scale` multiplies gradients
  /// (clipping). Refuses (Error{kShardingType}) a gradient whose type is not the dual of its
  /// parameter's placement: a reduction is missing, or was done twice. kInvalidArgument where no
  /// parameter has a gradient.
  void step(double lr, double grad_scale = 1.0);
  /// Forgets the gradients of the parameters; the next backward pass overwrites them. Between steps
  /// always, between the micro-batches of a step never.
  void zero_grad();
  /// Updates done.
  std::int64_t steps() const { return steps_; }
  /// Bytes of the moments.
  std::size_t state_bytes() const;

 private:
  struct State {
    spmd::ParameterPtr parameter;
    Tensor m, v;
  };
  std::vector<State> states_;
  AdamWConfig config_;
  std::int64_t steps_ = 0;
};

}  // namespace tessera::optim

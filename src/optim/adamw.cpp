// SPDX-License-Identifier: Apache-2.0
#include "tessera/optim/adamw.hpp"

#include <fmt/format.h>

#include "tessera/core/error.hpp"
#include "tessera/ops/adamw.hpp"

namespace tessera::optim {

void AdamWConfig::validate() const {
  const auto require = [](bool ok, const std::string& message) {
    if (!ok) throw Error(ErrorCode::kConfig, message);
  };
  require(beta1 >= 0.0 && beta1 < 1.0,
          fmt::format("optim.beta1 must lie in [0, 1), not {}", beta1));
  require(beta2 >= 0.0 && beta2 < 1.0,
          fmt::format("optim.beta2 must lie in [0, 1), not {}", beta2));
  require(eps >= 0.0, fmt::format("optim.eps must not be negative, not {}", eps));
  require(weight_decay >= 0.0,
          fmt::format("optim.weight_decay must not be negative, not {}", weight_decay));
}

AdamW::AdamW(std::vector<spmd::ParameterPtr> parameters, const AdamWConfig& config)
    : config_(config) {
  config.validate();
  for (spmd::ParameterPtr& parameter : parameters) {
    const Tensor& value = parameter->variable.value();
    State state;
    state.m = Tensor::zeros(value.context(), value.shape(), parameter->variable.grad_dtype(),
                            MemoryCategory::kOptimizer);
    state.v = Tensor::zeros(value.context(), value.shape(), parameter->variable.grad_dtype(),
                            MemoryCategory::kOptimizer);
    state.parameter = std::move(parameter);
    states_.push_back(std::move(state));
  }
}

void AdamW::step(double lr, double grad_scale) {
  std::vector<ops::AdamWState> updates;
  updates.reserve(states_.size());
  for (const State& state : states_) {
    const autograd::Variable& variable = state.parameter->variable;
    if (!variable.grad().defined()) continue;
    const ShardingType expected = state.parameter->placement.type.dual();
    if (variable.grad_type() != expected) {
      throw Error(ErrorCode::kShardingType,
                  fmt::format("AdamW: the gradient of {} is [{}] but the parameter at rest is [{}] "
                              "and needs [{}]: a reduction over a data axis is missing (wrap the "
                              "model with Ddp and call finish_step()), or was done twice",
                              state.parameter->name, to_string(variable.grad_type()),
                              to_string(state.parameter->placement.type), to_string(expected)));
    }
    const double decay =
        state.parameter->decay == spmd::WeightDecay::kYes ? config_.weight_decay : 0.0;
    updates.push_back({variable.value(), variable.grad(), state.m, state.v, decay});
  }
  TESSERA_CHECK(!updates.empty() || states_.empty(),
                "AdamW: none of the {} parameters has a gradient; call backward before step()",
                states_.size());
  ++steps_;
  ops::adamw(updates, {lr, config_.beta1, config_.beta2, config_.eps, grad_scale, steps_});
}

void AdamW::zero_grad() {
  for (const State& state : states_) state.parameter->variable.state()->grad = Tensor();
}

std::size_t AdamW::state_bytes() const {
  std::size_t bytes = 0;
  for (const State& state : states_) bytes += state.m.bytes() + state.v.bytes();
  return bytes;
}

}  // namespace tessera::optim

// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/variable.hpp"

#include <fmt/format.h>

namespace tessera::autograd {

Variable::Variable(Tensor value, ShardingType type, TakesGradient takes)
    : state_(std::make_shared<VariableState>()) {
  TESSERA_CHECK(value.defined(), "a Variable needs a defined tensor");
  TESSERA_CHECK(takes == TakesGradient::kNo || is_floating(value.dtype()),
                "only floating tensors take gradients, not {}", to_string(value.dtype()));
  state_->grad_dtype = value.dtype();
  state_->type = type.over(value.shape());
  state_->value = std::move(value);
  state_->takes_gradient = takes == TakesGradient::kYes;
}

Variable Variable::parameter(Tensor value, ShardingType type, std::string name, DType grad_dtype) {
  Variable variable(std::move(value), type, TakesGradient::kYes);
  VariableState& state = *variable.state_;
  state.name = std::move(name);
  state.is_parameter = true;
  state.is_weight_side = true;
  state.grad_dtype = state.value.dtype() == DType::kF64 ? DType::kF64 : grad_dtype;
  return variable;
}

void Variable::set_grad(Tensor grad, ShardingType type) {
  state_->grad = std::move(grad);
  state_->grad_type = type;
}

void Variable::zero_grad() { state_->grad = Tensor(); }

void Variable::set_grad_buffer(Tensor buffer) {
  TESSERA_CHECK(
      buffer.is_contiguous() && buffer.shape() == shape() && buffer.dtype() == state_->grad_dtype,
      "gradient buffer of {}: expected a contiguous {} of {}, got {} of {}", name(),
      shape().to_string(), to_string(state_->grad_dtype), buffer.shape().to_string(),
      to_string(buffer.dtype()));
  state_->grad = Tensor();
  state_->grad_buffer = std::move(buffer);
}

Variable Variable::detach() const { return Variable(value(), type(), TakesGradient::kNo); }

}  // namespace tessera::autograd

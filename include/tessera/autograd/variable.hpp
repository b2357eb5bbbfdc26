// SPDX-License-Identifier: Apache-2.0
// A tensor in the graph: value, sharding type, and how to differentiate it. A graph is owned by its
// outputs; there is no global tape. Copying a Variable copies the handle.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tessera/core/sharding.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::autograd {

class Node;

/// What Variable handles share. Engine and op authors use it; users use Variable.
struct VariableState {
  Tensor value;
  ShardingType type;
  std::string name;  ///< leaves only, for messages
  bool takes_gradient =
      false;  ///< whether it depends on a leaf that takes gradients (in any grad mode)
  bool is_leaf = true;
  bool is_parameter = false;
  bool is_weight_side = false;  ///< a parameter, or one behind conversions only: its gradient is a
                                ///< weight gradient, which a pipeline schedule may defer
  std::shared_ptr<Node> node;   ///< what made it; null for leaves and outside grad mode
  int output = 0;               ///< which output of the node

  // Leaves that take gradients:
  Tensor grad;  ///< undefined until the first contribution after zero_grad()
  ShardingType grad_type;
  Tensor grad_buffer;  ///< where the gradient is to be accumulated, if set (bucket views)
  DType grad_dtype = DType::kF32;
  std::function<void()> grad_ready;  ///< after the last contribution of a backward pass
  std::function<Tensor()> regather;  ///< if set, saved for backward as this recipe, not as data
};

enum class TakesGradient { kNo, kYes };

class Variable {
 public:
  /// Undefined.
  Variable() = default;
  /// A leaf. With a mesh every leaf needs its type there; a split dim whose chunks are not alike on
  /// all ranks also needs the size of the whole (AxisType::of). Throws Error{kShardingType} where
  /// the type does not fit the tensor (ShardingType::over).
  explicit Variable(Tensor value, ShardingType type = {}, TakesGradient takes = TakesGradient::kNo);
  /// A leaf that an optimizer owns; gradients accumulate in `grad_dtype` (f64 for f64 values).
  static Variable parameter(Tensor value, ShardingType type, std::string name,
                            DType grad_dtype = DType::kF32);
  explicit Variable(std::shared_ptr<VariableState> state) : state_(std::move(state)) {}

  bool defined() const { return state_ != nullptr; }
  const Tensor& value() const { return state_->value; }
  const Shape& shape() const { return state_->value.shape(); }
  DType dtype() const { return state_->value.dtype(); }
  int rank() const { return state_->value.rank(); }
  Context& context() const { return state_->value.context(); }
  const ShardingType& type() const { return state_->type; }
  const std::string& name() const { return state_->name; }
  bool takes_gradient() const { return state_->takes_gradient; }

  /// Accumulated gradient of a leaf; undefined when there is none yet.
  const Tensor& grad() const { return state_->grad; }
  /// The gradient's own type: the dual of type() until a reduction converts it.
  const ShardingType& grad_type() const { return state_->grad_type; }
  /// Replaces the gradient, with its type (after a reduction).
  void set_grad(Tensor grad, ShardingType type);
  /// Forgets the gradient; the next contribution overwrites.
  void zero_grad();
  /// Gradients accumulate in `buffer` (contiguous, this shape, the gradient dtype) from now on.
  void set_grad_buffer(Tensor buffer);
  DType grad_dtype() const { return state_->grad_dtype; }
  /// Called in each backward pass after this leaf's last contribution.
  void set_grad_ready_hook(std::function<void()> hook) { state_->grad_ready = std::move(hook); }

  /// The same value as a leaf that takes no gradient.
  Variable detach() const;

  const std::shared_ptr<VariableState>& state() const { return state_; }

 private:
  std::shared_ptr<VariableState> state_;
};

}  // namespace tessera::autograd

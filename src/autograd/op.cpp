// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/op.hpp"

#include <fmt/format.h>

#include "state.hpp"

namespace tessera::autograd {

Node::~Node() {
  // A chain of nodes would be destroyed recursively, one stack frame per op; unlink it in a loop.
  std::vector<std::shared_ptr<Node>> chain;
  const auto take = [&chain](Node& node) {
    for (Edge& edge : node.inputs) {
      if (edge.node != nullptr && edge.node.use_count() == 1) chain.push_back(std::move(edge.node));
    }
  };
  functions.clear();
  take(*this);
  while (!chain.empty()) {
    const std::shared_ptr<Node> node = std::move(chain.back());
    chain.pop_back();
    node->functions.clear();
    take(*node);
  }
}

Op::Op(const char* name, std::initializer_list<Variable> inputs, const TypeRule& rule, OpSide side)
    : Op(name, std::span<const Variable>(inputs.begin(), inputs.size()), rule, side) {}

Op::Op(const char* name, std::span<const Variable> inputs, const TypeRule& rule, OpSide side)
    : name_(name) {
  open(inputs, side);
  if (context_->checks_types()) type_ = infer_type(name, inputs, rule);
}

Op::Op(const char* name, std::initializer_list<Variable> inputs, const DeclaredType& declared,
       OpSide side)
    : Op(name, std::span<const Variable>(inputs.begin(), inputs.size()), declared, side) {}

Op::Op(const char* name, std::span<const Variable> inputs, const DeclaredType& declared,
       OpSide side)
    : name_(name), type_(declared.type) {
  open(inputs, side);
}

void Op::open(std::span<const Variable> inputs, OpSide side) {
  TESSERA_CHECK(!inputs.empty() && inputs[0].defined(), "{}: operand 0 is undefined", name_);
  context_ = &inputs[0].context();
  if (context_->profiler().is_enabled()) {
    profile_ = std::make_unique<ProfileScope>(context_->profiler(), name_, "op");
  }
  bool all_weight_side = side == OpSide::kConversion;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TESSERA_CHECK(inputs[i].defined(), "{}: operand {} is undefined", name_, i);
    TESSERA_CHECK(
        &inputs[i].context() == context_,
        "{}: operand {} belongs to another context than operand 0; one graph lives in one "
        "context",
        name_, i);
    const VariableState& state = *inputs[i].state();
    if (!state.takes_gradient) continue;
    takes_gradient_ = true;
    all_weight_side = all_weight_side && state.is_weight_side;
  }
  is_weight_side_ = takes_gradient_ && all_weight_side;
  auto& autograd = context_->extension<AutogradState>();
  if (autograd.touched != nullptr) {
    for (const Variable& input : inputs) {
      // Made outside the region: leaves, and what has a node (inside nothing is recorded).
      const VariableState& state = *input.state();
      if (state.takes_gradient && (state.is_leaf || state.node != nullptr)) {
        autograd.touched->push_back(input.state());
      }
    }
  }
  if (!takes_gradient_ || !context_->records_gradients()) return;
  node_ = std::make_shared<Node>();
  node_->name = name_;
  node_->sequence = autograd.next_sequence++;
  node_->is_weight_side = is_weight_side_;
  node_->inputs.reserve(inputs.size());
  for (const Variable& input : inputs) {
    const VariableState& state = *input.state();
    Edge edge;
    edge.is_weight = state.is_weight_side && !is_weight_side_;
    if (state.node != nullptr) {
      edge.node = state.node;
      edge.output = state.output;
    } else if (state.is_leaf && state.takes_gradient) {
      edge.leaf = input.state();
    }
    node_->inputs.push_back(std::move(edge));
  }
}

bool Op::needs(int input) const {
  return node_ != nullptr && node_->inputs[static_cast<std::size_t>(input)].wants_gradient();
}

void Op::gradient(std::initializer_list<int> inputs, GradientFunction function) {
  gradient(std::span<const int>(inputs.begin(), inputs.size()), std::move(function));
}

void Op::gradient(std::span<const int> inputs, GradientFunction function) {
  if (node_ == nullptr) return;
  std::uint64_t mask = 0;
  bool any = false;
  for (const int input : inputs) {
    mask |= std::uint64_t{1} << input;
    any = any || needs(input);
  }
  if (any) node_->functions.push_back({mask, std::move(function)});
}

Variable Op::output(Tensor value) {
  const Tensor values[] = {std::move(value)};
  const ShardingType types[] = {type_};
  return outputs(values, types)[0];
}

std::vector<Variable> Op::outputs(std::span<const Tensor> values,
                                  std::span<const ShardingType> types) {
  profile_.reset();
  std::vector<Variable> results;
  results.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto state = std::make_shared<VariableState>();
    state->value = values[i];
    state->type = types[i].over(values[i].shape());
    state->takes_gradient = takes_gradient_ && is_floating(values[i].dtype());
    state->is_leaf = false;
    state->is_weight_side = is_weight_side_;
    if (node_ != nullptr) {
      node_->outputs.push_back({values[i].shape(), values[i].dtype(), state->type, context_});
      if (state->takes_gradient) {
        state->node = node_;
        state->output = static_cast<int>(i);
      }
    }
    if (context_->has_observers())
      context_->notify(OpPhase::kForward, name_, values[i], state->type);
    results.emplace_back(std::move(state));
  }
  return results;
}

}  // namespace tessera::autograd

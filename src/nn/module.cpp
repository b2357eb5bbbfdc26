// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/module.hpp"

#include <fmt/format.h>

#include <unordered_set>

#include "tessera/core/error.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::nn {

BuildContext BuildContext::child(std::string_view name) const {
  BuildContext copy = *this;
  copy.path = path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
  return copy;
}

RandomKey BuildContext::site(std::string_view name) const {
  return context->random_key().child(child(name).path);
}

ParameterPtr Module::add_parameter(std::string_view name, const Shape& shape, const Init& init,
                                   WeightDecay decay) {
  auto parameter = std::make_shared<Parameter>();
  parameter->name = build_.child(name).path;
  parameter->decay = decay;
  parameter->placement.global_shape = shape;
  parameter->placement.type = ShardingType(build_.axes);
  const Tensor value = Tensor::zeros(context(), shape, build_.dtype, MemoryCategory::kParameter);
  if (init.kind == Init::Kind::kOnes) ops::fill(value, 1.0);
  if (init.kind == Init::Kind::kNormal) {
    spmd::fill_normal(value, parameter->placement, build_.site(name), init.std);
  }
  parameter->variable =
      autograd::Variable::parameter(value, parameter->placement.type, parameter->name);
  parameters_.push_back(parameter);
  return parameter;
}

std::vector<ParameterPtr> Module::parameters() const {
  std::vector<ParameterPtr> all;
  std::unordered_set<const Parameter*> seen;
  const std::function<void(const Module&)> walk = [&](const Module& module) {
    for (const ParameterPtr& parameter : module.parameters_) {
      if (seen.insert(parameter.get()).second) all.push_back(parameter);
    }
    for (const auto& [name, child] : module.children_) walk(*child);
  };
  walk(*this);
  return all;
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const ParameterPtr& parameter : parameters()) {
    count += parameter->placement.global_shape.numel();
  }
  return count;
}

void Module::visit(const std::function<void(const std::string&, Module&)>& visit) {
  visit(path(), *this);
  for (const auto& [name, child] : children_) child->visit(visit);
}

void Module::replace_child(std::string_view name, std::shared_ptr<Module> module) {
  for (auto& [child_name, child] : children_) {
    if (child_name == name) {
      child = std::move(module);
      return;
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("module \"{}\" has no child \"{}\"", path(), name));
}

void Module::set_training(bool training) {
  is_training_ = training;
  for (const auto& [name, child] : children_) child->set_training(training);
}

}  // namespace tessera::nn

// SPDX-License-Identifier: Apache-2.0
// The module tree. A module registers its parameters and children in its constructor; names are
// qualified by the path. Containers hold children by shared pointer, so that a parallel strategy
// can replace one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/context.hpp"
#include "tessera/core/random.hpp"
#include "tessera/spmd/parameter.hpp"

namespace tessera::nn {

using spmd::Parameter;
using spmd::ParameterPtr;
using spmd::WeightDecay;

/// What a module is built with: context, mesh axes, dtype, and the path of names so far.
struct BuildContext {
  Context* context = nullptr;
  const AxisTable* axes = nullptr;  ///< null without a mesh
  DType dtype = DType::kF32;
  std::string path;  ///< "" at the root

  BuildContext child(std::string_view name) const;
  /// A key for random numbers at this place in the model, independent of layout.
  RandomKey site(std::string_view name) const;
};

/// How a parameter starts.
struct Init {
  enum class Kind { kZeros, kOnes, kNormal } kind = Kind::kZeros;
  double std = 0.0;
  static Init zeros() { return {Kind::kZeros, 0.0}; }
  static Init ones() { return {Kind::kOnes, 0.0}; }
  static Init normal(double std) { return {Kind::kNormal, std}; }
};

class Module {
 public:
  explicit Module(BuildContext build) : build_(std::move(build)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Context& context() const { return *build_.context; }
  const BuildContext& build() const { return build_; }
  const std::string& path() const { return build_.path; }
  /// Parameters of this module and its children, in order of registration; a tied one appears once.
  std::vector<ParameterPtr> parameters() const;
  /// Number of elements of all parameters (global), tied ones once.
  std::int64_t parameter_count() const;
  /// Calls `visit(name, module)` for every module of the tree, parents first.
  void visit(const std::function<void(const std::string& name, Module& module)>& visit);
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const {
    return children_;
  }
  /// Puts another module in a child's place; it must hold the same parameter names.
  virtual void replace_child(std::string_view name, std::shared_ptr<Module> module);
  /// Whether dropout is active. Set for the whole tree.
  void set_training(bool training);
  bool is_training() const { return is_training_; }

 protected:
  /// Makes a parameter, initialised by (seed, qualified name, global element index).
  ParameterPtr add_parameter(std::string_view name, const Shape& shape, const Init& init,
                             WeightDecay decay = WeightDecay::kYes);
  /// Registers an existing parameter (a tied weight) under this module too.
  void tie_parameter(ParameterPtr parameter) { parameters_.push_back(std::move(parameter)); }
  template <typename M>
  std::shared_ptr<M> add_child(std::string_view name, std::shared_ptr<M> module) {
    children_.emplace_back(std::string(name), module);
    return module;
  }

 private:
  BuildContext build_;
  std::vector<ParameterPtr> parameters_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  bool is_training_ = true;
};

}  // namespace tessera::nn

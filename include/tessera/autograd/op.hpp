// SPDX-License-Identifier: Apache-2.0
// How a differentiable function is written: open an Op with its sharding rule (there is no way
// without one), compute the value with ops::, give one closure per group of inputs that returns
// gradients, and make the output.
//
//   Variable activation(const Variable& x, ops::Activation kind) {
//     Op op("activation", {x}, elementwise_rule(x.rank()));
//     if (op.needs(0)) {  // nothing is saved, packed or offloaded in vain
//       op.gradient({0}, [x = Saved(x), kind](Gradients& g) {
//         g.add(0, ops::activation_backward(x.get(), g.dy(), kind));
//       });
//     }
//     return op.output(ops::activation(x.value(), kind));
//   }
//
// Closures for activations and for weights are separate where they need different tensors, because
// a pipeline may run the weight part later and keep only what that part captured.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "tessera/autograd/saved.hpp"
#include "tessera/autograd/type_rule.hpp"
#include "tessera/autograd/variable.hpp"
#include "tessera/core/profile.hpp"

namespace tessera::autograd {

/// What a gradient closure sees: the outputs' gradients, and where its inputs' gradients go.
class Gradients {
 public:
  virtual ~Gradients() = default;
  /// Gradient of an output, of the output's shape and dtype; contiguous. Zeros are materialised.
  virtual const Tensor& dy(int output = 0) = 0;
  /// True when this run wants the input's gradient.
  virtual bool wants(int input) const = 0;
  /// True when the graph is released after this run: a closure may give away what it holds.
  virtual bool is_last_run() const = 0;
  /// Contributes to the gradient of an input: the input's shape. May alias dy. A leaf without a
  /// gradient takes the tensor itself when nobody else holds its memory, of category kGradient.
  virtual void add(int input, Tensor gradient) = 0;
  /// Where a leaf's gradient accumulates, so that a kernel can add in place; `accumulates` says
  /// whether the target already holds a part (false: overwrite it; every element must be written).
  /// Undefined when there is no such place: use add() then. The target counts as contributed.
  virtual Tensor target(int input, bool& accumulates) = 0;
};

using GradientFunction = std::function<void(Gradients&)>;

/// An edge to what made an input: a node, or a leaf; neither when the input takes no gradient.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
  std::shared_ptr<VariableState> leaf;
  bool is_weight = false;
  bool wants_gradient() const { return node != nullptr || leaf != nullptr; }
};

/// One recorded operation.
class Node {
 public:
  struct OutputInfo {
    Shape shape;
    DType dtype;
    ShardingType type;
    Context* context;
  };
  struct Function {
    std::uint64_t inputs;  ///< bit i: contributes to input i
    GradientFunction run;
  };
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  /// Releases long chains without recursion.
  ~Node();

  const char* name = "";
  std::uint64_t sequence = 0;   ///< order of creation in the context
  bool is_weight_side = false;  ///< a conversion of parameters only
  std::vector<Edge> inputs;
  std::vector<OutputInfo> outputs;
  std::vector<Function> functions;
  bool is_released = false;  ///< closures are gone after a backward pass
};

/// Whether an op's output on a parameter is still on the weight side: conversions (cast, permute,
/// slice, I->R) are, computations are not.
enum class OpSide { kActivation, kConversion };

class Op {
 public:
  /// Infers the output type by the rule (unless the context does not check types).
  Op(const char* name, std::initializer_list<Variable> inputs, const TypeRule& rule,
     OpSide side = OpSide::kActivation);
  Op(const char* name, std::span<const Variable> inputs, const TypeRule& rule,
     OpSide side = OpSide::kActivation);
  /// For ops with collectives inside and changes of dims: the type is computed by the caller.
  Op(const char* name, std::initializer_list<Variable> inputs, const DeclaredType& declared,
     OpSide side = OpSide::kActivation);
  Op(const char* name, std::span<const Variable> inputs, const DeclaredType& declared,
     OpSide side = OpSide::kActivation);
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  /// Whether a graph is recorded: grad mode, and some input takes gradients.
  bool records() const { return node_ != nullptr; }
  /// Whether the input's gradient will be wanted.
  bool needs(int input) const;
  /// Adds the closure of some inputs; dropped at once when none of them takes gradients.
  void gradient(std::initializer_list<int> inputs, GradientFunction function);
  void gradient(std::span<const int> inputs, GradientFunction function);
  const ShardingType& type() const { return type_; }

  /// The single output, with the inferred type.
  Variable output(Tensor value);
  /// Several outputs; `types` one per output.
  std::vector<Variable> outputs(std::span<const Tensor> values,
                                std::span<const ShardingType> types);

 private:
  void open(std::span<const Variable> inputs, OpSide side);

  const char* name_;
  Context* context_ = nullptr;
  ShardingType type_;
  bool takes_gradient_ = false;
  bool is_weight_side_ = false;
  std::shared_ptr<Node> node_;
  std::unique_ptr<ProfileScope> profile_;
};

}  // namespace tessera::autograd

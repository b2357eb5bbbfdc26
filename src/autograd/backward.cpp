// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/backward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "nested.hpp"
#include "tessera/autograd/op.hpp"
#include "tessera/core/context.hpp"
#include "tessera/ops/add.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::autograd {
namespace {

enum class Run { kAll, kActivations, kWeights };

/// Adds to a gradient that a pass holds; in place when nobody else can see the memory.
void accumulate(Tensor& sum, Tensor gradient) {
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (sum.storage().use_count() == 1 && sum.is_contiguous()) {
    ops::axpy(sum, ops::contiguous(gradient));
  } else {
    sum = ops::add(sum, gradient);
  }
}

Tensor empty_leaf_gradient(const VariableState& leaf) {
  if (leaf.grad_buffer.defined()) return leaf.grad_buffer;
  return Tensor::empty(leaf.value.context(), leaf.value.shape(), leaf.grad_dtype,
                       MemoryCategory::kGradient);
}

/// What a leaf holds must be of the type of what is added: a reduced gradient is not.
void require_same_type(const VariableState& leaf) {
  if (leaf.grad_type == leaf.type.dual()) return;
  throw Error(ErrorCode::kShardingType,
              fmt::format("backward: the gradient that {} holds is [{}], already reduced, and a "
                          "pending [{}] would be added to it. Call zero_grad() after the "
                          "optimizer's step",
                          leaf.name.empty() ? "a leaf" : leaf.name, to_string(leaf.grad_type),
                          to_string(leaf.type.dual())));
}

bool can_be_taken(const VariableState& leaf, const Tensor& gradient) {
  return !leaf.grad_buffer.defined() && gradient.dtype() == leaf.grad_dtype &&
         gradient.storage()->category() == MemoryCategory::kGradient && gradient.is_contiguous() &&
         gradient.storage().use_count() == 1 && gradient.bytes() == gradient.storage()->bytes();
}

void accumulate_leaf(VariableState& leaf, Tensor gradient) {
  if (leaf.grad.defined()) {
    require_same_type(leaf);
    ops::axpy(leaf.grad, ops::contiguous(gradient));
    return;
  }
  leaf.grad_type = leaf.type.dual();
  if (can_be_taken(leaf, gradient)) {
    leaf.grad = std::move(gradient);
    return;
  }
  leaf.grad = empty_leaf_gradient(leaf);
  ops::copy_into(leaf.grad, gradient);
}

/// Leaves of a pass: how many contributions each still waits for; and, where the pass ends in a
/// sink instead of the leaves' own gradients, which leaves and inner Variables are wanted there.
struct Leaves {
  std::unordered_map<VariableState*, int> pending;
  Gradients* sink = nullptr;
  std::unordered_map<const VariableState*, int> leaf_inputs;  ///< input of the sink
  std::map<std::pair<const Node*, int>, int> cut_inputs;      ///< likewise; the graph ends there

  void want(const VariableState& state, int input) {
    if (state.node != nullptr) {
      cut_inputs.emplace(std::pair(state.node.get(), state.output), input);
    } else {
      leaf_inputs.emplace(&state, input);
    }
  }
  /// The sink's input for a leaf, or -1.
  int input_of(const VariableState& leaf) const {
    const auto found = leaf_inputs.find(&leaf);
    return found == leaf_inputs.end() ? -1 : found->second;
  }
  /// The sink's input for an output at which the graph is cut, or -1.
  int input_of(const Node* node, int output) const {
    if (cut_inputs.empty()) return -1;
    const auto found = cut_inputs.find({node, output});
    return found == cut_inputs.end() ? -1 : found->second;
  }
  bool wants(const VariableState& leaf) const {
    if (sink == nullptr) return true;
    const int input = input_of(leaf);
    return input >= 0 && sink->wants(input);
  }
  void contribute(VariableState& leaf, Tensor gradient) {
    if (sink == nullptr) {
      accumulate_leaf(leaf, std::move(gradient));
    } else if (const int input = input_of(leaf); input >= 0) {
      sink->add(input, std::move(gradient));
    }
  }
  Tensor target(VariableState& leaf, bool& accumulates) {
    if (leaf.value.context().has_observers()) return {};  // observers see gradients through add()
    if (sink != nullptr) return sink->target(input_of(leaf), accumulates);
    if (leaf.grad_dtype != leaf.value.dtype()) return {};
    accumulates = leaf.grad.defined();
    if (accumulates) {
      require_same_type(leaf);
    } else {
      leaf.grad = empty_leaf_gradient(leaf);
      leaf.grad_type = leaf.type.dual();
    }
    return leaf.grad;
  }
  void settle(VariableState& leaf) {
    if (--pending[&leaf] == 0 && sink == nullptr && leaf.grad_ready) leaf.grad_ready();
  }
};

struct PendingNode {
  std::shared_ptr<Node> node;
  std::vector<Tensor> dys;
};

/// Nodes with their incoming gradients, in the order of running (last made first).
struct Engine {
  std::vector<PendingNode> nodes;
  std::unordered_map<const Node*, std::size_t> index;
  Leaves leaves;
  bool keeps_graph = false;

  void start(std::span<const Root> roots);
  void collect(const std::shared_ptr<Node>& from);
  void order();
  void seed(const Root& root);
  void contribute(const Edge& edge, Tensor gradient);
  void route(PendingNode& pending, Run run);
};

/// Runs the closures of one node.
class NodeRun final : public Gradients {
 public:
  NodeRun(PendingNode& pending, Engine& engine, Run run)
      : node_(*pending.node), dys_(pending.dys), engine_(engine), run_(run) {}

  const Tensor& dy(int output) override {
    Tensor& dy = dys_[static_cast<std::size_t>(output)];
    if (!dy.defined()) {
      const Node::OutputInfo& info = node_.outputs[static_cast<std::size_t>(output)];
      dy = Tensor::zeros(*info.context, info.shape, info.dtype);
    }
    dy = ops::contiguous(dy);
    return dy;
  }

  bool wants(int input) const override {
    const Edge& edge = edge_of(input);
    if (!edge.wants_gradient()) return false;
    if (run_ == Run::kWeights && !edge.is_weight) return false;
    return edge.leaf == nullptr || engine_.leaves.wants(*edge.leaf);
  }

  bool is_last_run() const override { return !engine_.keeps_graph; }

  void add(int input, Tensor gradient) override {
    if (!wants(input)) return;
    Context& context = *node_.outputs[0].context;
    if (context.has_observers()) {
      context.notify(OpPhase::kBackward, node_.name, gradient, type_of(edge_of(input)).dual());
    }
    engine_.contribute(edge_of(input), std::move(gradient));
  }

  Tensor target(int input, bool& accumulates) override {
    if (!wants(input) || edge_of(input).leaf == nullptr) return {};
    return engine_.leaves.target(*edge_of(input).leaf, accumulates);
  }

 private:
  static const ShardingType& type_of(const Edge& edge) {
    if (edge.leaf != nullptr) return edge.leaf->type;
    return edge.node->outputs[static_cast<std::size_t>(edge.output)].type;
  }
  const Edge& edge_of(int input) const { return node_.inputs[static_cast<std::size_t>(input)]; }

  const Node& node_;
  std::vector<Tensor>& dys_;
  Engine& engine_;
  Run run_;
};

/// Whether a closure contributes to activations (`is_weight` false) or to weights.
bool contributes(const Node& node, const Node::Function& function, bool is_weight) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if ((function.inputs & (std::uint64_t{1} << i)) == 0) continue;
    if (node.inputs[i].wants_gradient() && node.inputs[i].is_weight == is_weight) return true;
  }
  return false;
}

/// A closure of activations and weights together (a recomputed region) cannot be split: all of it
/// runs with the activations.
bool concerns(const Node& node, const Node::Function& function, Run run) {
  return run == Run::kAll || contributes(node, function, false) == (run == Run::kActivations);
}

void Engine::start(std::span<const Root> roots) {
  for (const Root& root : roots) {
    TESSERA_CHECK(root.output.defined() && root.output.takes_gradient(),
                  "backward: the output depends on nothing that takes gradients");
    VariableState& state = *root.output.state();
    TESSERA_CHECK(state.node != nullptr || state.is_leaf,
                  "backward: the output was computed outside grad mode and has no graph");
    if (state.node == nullptr) {
      ++leaves.pending[&state];
    } else if (leaves.input_of(state.node.get(), state.output) < 0) {
      collect(state.node);
    }
  }
  order();
  for (const Root& root : roots) seed(root);
  for (const Root& root : roots) {
    if (root.output.state()->node == nullptr) leaves.settle(*root.output.state());
  }
}

void Engine::collect(const std::shared_ptr<Node>& from) {
  std::vector<std::shared_ptr<Node>> stack{from};
  while (!stack.empty()) {
    const std::shared_ptr<Node> node = std::move(stack.back());
    stack.pop_back();
    if (!index.emplace(node.get(), 0).second) continue;
    TESSERA_CHECK(
        !node->is_released,
        "{}: this graph has been through backward already and its saved tensors are gone; "
        "run the forward pass again, or keep the graph (KeepGraph::kYes)",
        node->name);
    for (const Edge& edge : node->inputs) {
      if (edge.node != nullptr && leaves.input_of(edge.node.get(), edge.output) < 0) {
        stack.push_back(edge.node);
      }
      if (edge.leaf != nullptr) ++leaves.pending[edge.leaf.get()];
    }
    nodes.push_back({node, std::vector<Tensor>(node->outputs.size())});
  }
}

void Engine::order() {
  std::sort(nodes.begin(), nodes.end(), [](const PendingNode& a, const PendingNode& b) {
    return a.node->sequence > b.node->sequence;
  });
  for (std::size_t i = 0; i < nodes.size(); ++i) index[nodes[i].node.get()] = i;
}

void Engine::seed(const Root& root) {
  const VariableState& state = *root.output.state();
  Tensor gradient = root.gradient;
  if (!gradient.defined()) {
    require_seed_counts_once(root.output, "the output");
    TESSERA_CHECK(
        state.value.numel() == 1,
        "backward from a tensor of shape {} needs a gradient of that shape; only a scalar "
        "starts from 1",
        state.value.shape().to_string());
    gradient = Tensor::empty(state.value.context(), state.value.shape(), state.value.dtype());
    ops::fill(gradient, 1.0);
  }
  TESSERA_CHECK(gradient.shape() == state.value.shape() && gradient.dtype() == state.value.dtype(),
                "backward: the gradient is {} of {} but the output {} of {}",
                to_string(gradient.dtype()), gradient.shape().to_string(),
                to_string(state.value.dtype()), state.value.shape().to_string());
  Edge edge;
  edge.node = state.node;
  edge.output = state.output;
  if (state.node == nullptr) edge.leaf = root.output.state();
  contribute(edge, gradient);
}

/// At once, not at the end of the node, so that the order of every sum is the closures' order, with
/// or without recomputation.
void Engine::contribute(const Edge& edge, Tensor gradient) {
  if (edge.leaf != nullptr) {
    leaves.contribute(*edge.leaf, std::move(gradient));
  } else if (const int input = leaves.input_of(edge.node.get(), edge.output); input >= 0) {
    leaves.sink->add(input, std::move(gradient));
  } else {
    accumulate(nodes[index.at(edge.node.get())].dys[static_cast<std::size_t>(edge.output)],
               std::move(gradient));
  }
}

void Engine::route(PendingNode& pending, Run run) {
  Node& node = *pending.node;
  const bool has_gradient = std::any_of(pending.dys.begin(), pending.dys.end(),
                                        [](const Tensor& dy) { return dy.defined(); });
  if (has_gradient) {
    Context& context = *node.outputs[0].context;
    const ProfileScope profile(context.profiler(), node.name, "backward");
    const NoGradScope no_grad(context);
    NodeRun gradients(pending, *this, run == Run::kActivations ? Run::kAll : run);
    for (const Node::Function& function : node.functions) {
      if (concerns(node, function, run)) function.run(gradients);
    }
  }
  for (const Edge& edge : node.inputs) {
    if (edge.leaf == nullptr) continue;
    const bool in_this_run = run == Run::kAll || edge.is_weight == (run == Run::kWeights);
    if (in_this_run) leaves.settle(*edge.leaf);
  }
}

void release(Node& node) {
  node.functions.clear();
  node.is_released = true;
}

bool has_weight_inputs(const Node& node) {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [](const Edge& edge) { return edge.is_weight && edge.wants_gradient(); });
}

}  // namespace

struct DeferredWeights::Impl {
  Engine engine;
};

struct BackwardPass::Impl {
  Engine engine;
  std::vector<std::shared_ptr<VariableState>> roots;
  std::size_t next = 0;
  BackwardPart part = BackwardPart::kAll;
  KeepGraph keep = KeepGraph::kNo;
  std::vector<PendingNode> deferred;

  void run_node(PendingNode& pending);
};

void BackwardPass::Impl::run_node(PendingNode& pending) {
  Node& node = *pending.node;
  const bool defers = part == BackwardPart::kInput;
  if (defers && node.is_weight_side) {
    deferred.push_back(std::move(pending));
  } else if (defers && has_weight_inputs(node)) {
    engine.route(pending, Run::kActivations);
    // The deferred part keeps dy and what the weight closures captured.
    std::erase_if(node.functions, [&node](const Node::Function& function) {
      return concerns(node, function, Run::kActivations);
    });
    node.is_released = true;
    deferred.push_back(std::move(pending));
  } else {
    engine.route(pending, Run::kAll);
    if (keep == KeepGraph::kNo) release(node);
  }
  pending = {};
}

BackwardPass::BackwardPass(std::span<const Root> roots, BackwardPart part, KeepGraph keep)
    : impl_(std::make_unique<Impl>()) {
  TESSERA_CHECK(part == BackwardPart::kAll || keep == KeepGraph::kNo,
                "a kInput pass releases its graph; KeepGraph::kYes needs BackwardPart::kAll");
  impl_->part = part;
  impl_->keep = keep;
  impl_->engine.keeps_graph = keep == KeepGraph::kYes;
  for (const Root& root : roots) impl_->roots.push_back(root.output.state());
  impl_->engine.start(roots);
}

BackwardPass::~BackwardPass() = default;

void BackwardPass::run_to(const Variable& boundary) {
  const auto& node = boundary.state()->node;
  const std::uint64_t last = node == nullptr ? 0 : node->sequence;
  std::vector<PendingNode>& nodes = impl_->engine.nodes;
  while (impl_->next < nodes.size() && nodes[impl_->next].node->sequence > last) {
    impl_->run_node(nodes[impl_->next++]);
  }
}

void BackwardPass::run() {
  std::vector<PendingNode>& nodes = impl_->engine.nodes;
  while (impl_->next < nodes.size()) impl_->run_node(nodes[impl_->next++]);
}

DeferredWeights BackwardPass::take_deferred() {
  TESSERA_CHECK(impl_->next == impl_->engine.nodes.size(),
                "take_deferred: the pass is not finished; call run() first");
  DeferredWeights weights;
  if (impl_->deferred.empty()) return weights;
  weights.impl_ = std::make_unique<DeferredWeights::Impl>();
  Engine& engine = weights.impl_->engine;
  engine.nodes = std::move(impl_->deferred);
  engine.leaves.pending = impl_->engine.leaves.pending;
  engine.order();
  return weights;
}

DeferredWeights::DeferredWeights() = default;
DeferredWeights::DeferredWeights(DeferredWeights&&) noexcept = default;
DeferredWeights& DeferredWeights::operator=(DeferredWeights&&) noexcept = default;
DeferredWeights::~DeferredWeights() = default;

bool DeferredWeights::empty() const { return impl_ == nullptr; }

void DeferredWeights::run() {
  if (impl_ == nullptr) return;
  const std::unique_ptr<Impl> impl = std::move(impl_);
  for (PendingNode& pending : impl->engine.nodes) {
    impl->engine.route(pending, pending.node->is_weight_side ? Run::kAll : Run::kWeights);
    release(*pending.node);
    pending = {};
  }
}

void require_seed_counts_once(const Variable& output, std::string_view what) {
  const ShardingType& type = output.type();
  for (AxisId axis = 0; axis < type.count(); ++axis) {
    const AxisKind kind = type[axis].kind;
    if (kind == AxisKind::kPartial || kind == AxisKind::kInvariant) continue;
    const auto& info = type.axes()->axes[static_cast<std::size_t>(axis)];
    throw Error(
        ErrorCode::kShardingType,
        fmt::format("backward: {} is {} on mesh axis {} (size {}), so a seed on every rank would "
                    "count it once per rank. Give every rank its own rows (S), so that the sum "
                    "over them is P; where the ranks repeat one computation, convert R->I",
                    what, to_string(type[axis]), info.name, info.size));
  }
}

void backward(std::span<const Root> roots, KeepGraph keep) {
  BackwardPass(roots, BackwardPart::kAll, keep).run();
}

void backward(const Variable& output, const Tensor& gradient, KeepGraph keep) {
  const Root root{output, gradient};
  backward(std::span<const Root>(&root, 1), keep);
}

void backward_into(Gradients& sink, std::span<const Root> roots,
                   std::span<const Variable> variables, KeepGraph keep) {
  Engine engine;
  engine.leaves.sink = &sink;
  engine.keeps_graph = keep == KeepGraph::kYes;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    engine.leaves.want(*variables[i].state(), static_cast<int>(i));
  }
  engine.start(roots);
  for (PendingNode& pending : engine.nodes) {
    engine.route(pending, Run::kAll);
    if (keep == KeepGraph::kNo) release(*pending.node);
    pending = {};
  }
}

namespace {

/// Sums what arrives per input.
class Collector final : public Gradients {
 public:
  explicit Collector(std::size_t count) : sums(count) {}
  const Tensor& dy(int output) override { return sums[static_cast<std::size_t>(output)]; }
  bool wants(int) const override { return true; }
  bool is_last_run() const override { return true; }
  void add(int input, Tensor gradient) override {
    accumulate(sums[static_cast<std::size_t>(input)], std::move(gradient));
  }
  Tensor target(int, bool&) override { return {}; }

  std::vector<Tensor> sums;
};

}  // namespace

std::vector<Tensor> gradients(std::span<const Root> roots, std::span<const Variable> leaves,
                              KeepGraph keep) {
  std::vector<Variable> distinct;
  std::vector<std::size_t> place;
  for (const Variable& leaf : leaves) {
    const auto found = std::find_if(distinct.begin(), distinct.end(), [&leaf](const Variable& v) {
      return v.state() == leaf.state();
    });
    place.push_back(static_cast<std::size_t>(found - distinct.begin()));
    if (found == distinct.end()) distinct.push_back(leaf);
  }
  Collector collector(distinct.size());
  backward_into(collector, roots, distinct, keep);
  std::vector<Tensor> results;
  for (const std::size_t at : place) results.push_back(collector.sums[at]);
  return results;
}

}  // namespace tessera::autograd

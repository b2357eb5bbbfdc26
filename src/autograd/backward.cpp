// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/backward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

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

void accumulate_leaf(VariableState& leaf, const Tensor& gradient) {
  if (leaf.grad.defined()) {
    ops::axpy(leaf.grad, ops::contiguous(gradient));
    return;
  }
  leaf.grad = empty_leaf_gradient(leaf);
  leaf.grad_type = leaf.type.dual();
  ops::copy_into(leaf.grad, gradient);
}

/// Leaves of a pass: how many contributions each still waits for, or where gradients are collected.
struct Leaves {
  std::unordered_map<VariableState*, int> pending;
  std::unordered_map<VariableState*, std::size_t>
      collected_at;  ///< gradients(): index in `collected`
  std::vector<Tensor> collected;
  bool collects = false;

  void contribute(VariableState& leaf, Tensor gradient) {
    if (!collects) {
      accumulate_leaf(leaf, gradient);
    } else if (const auto found = collected_at.find(&leaf); found != collected_at.end()) {
      accumulate(collected[found->second], std::move(gradient));
    }
  }
  void settle(VariableState& leaf) {
    if (--pending[&leaf] == 0 && !collects && leaf.grad_ready) leaf.grad_ready();
  }
  bool wants(VariableState& leaf) const { return !collects || collected_at.contains(&leaf); }
};

/// Runs the closures of one node.
class NodeRun final : public Gradients {
 public:
  NodeRun(const Node& node, std::vector<Tensor>& dys, Leaves& leaves, Run run,
          std::vector<Tensor>& flowing)
      : node_(node), dys_(dys), leaves_(leaves), run_(run), flowing_(flowing) {}

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
    const Edge& edge = node_.inputs[static_cast<std::size_t>(input)];
    if (!edge.wants_gradient()) return false;
    if (run_ == Run::kActivations && edge.is_weight) return false;
    if (run_ == Run::kWeights && !edge.is_weight) return false;
    return edge.leaf == nullptr || leaves_.wants(*edge.leaf);
  }

  void add(int input, Tensor gradient) override {
    if (!wants(input)) return;
    const Edge& edge = node_.inputs[static_cast<std::size_t>(input)];
    Context& context = *node_.outputs[0].context;
    if (context.has_observers()) {
      context.notify(OpPhase::kBackward, node_.name, gradient, ShardingType());
    }
    if (edge.leaf != nullptr) {
      leaves_.contribute(*edge.leaf, std::move(gradient));
    } else {
      accumulate(flowing_[static_cast<std::size_t>(input)], std::move(gradient));
    }
  }

  Tensor target(int input, bool& accumulates) override {
    if (!wants(input)) return {};
    const Edge& edge = node_.inputs[static_cast<std::size_t>(input)];
    if (edge.leaf == nullptr || leaves_.collects) return {};
    VariableState& leaf = *edge.leaf;
    if (leaf.grad_dtype != leaf.value.dtype()) return {};
    if (leaf.value.context().has_observers()) return {};  // observers see gradients through add()
    accumulates = leaf.grad.defined();
    if (!accumulates) {
      leaf.grad = empty_leaf_gradient(leaf);
      leaf.grad_type = leaf.type.dual();
    }
    return leaf.grad;
  }

 private:
  const Node& node_;
  std::vector<Tensor>& dys_;
  Leaves& leaves_;
  Run run_;
  std::vector<Tensor>& flowing_;
};

bool concerns(const Node& node, const Node::Function& function, Run run) {
  if (run == Run::kAll) return true;
  bool activations = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if ((function.inputs & (std::uint64_t{1} << i)) == 0 || !node.inputs[i].wants_gradient())
      continue;
    activations = activations || !node.inputs[i].is_weight;
  }
  return activations == (run == Run::kActivations);
}

struct PendingNode {
  std::shared_ptr<Node> node;
  std::vector<Tensor> dys;
};

/// Nodes with their incoming gradients, in the order of running (last made first).
struct Engine {
  std::vector<PendingNode> nodes;
  std::unordered_map<const Node*, std::size_t> index;
  Leaves leaves;

  void collect(const std::shared_ptr<Node>& start);
  void order();
  void seed(const Root& root);
  void route(PendingNode& pending, Run run);
};

void Engine::collect(const std::shared_ptr<Node>& start) {
  std::vector<std::shared_ptr<Node>> stack{start};
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
      if (edge.node != nullptr) stack.push_back(edge.node);
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
  if (state.node == nullptr) {
    leaves.contribute(*root.output.state(), gradient);
    return;
  }
  accumulate(nodes[index.at(state.node.get())].dys[static_cast<std::size_t>(state.output)],
             gradient);
}

void Engine::route(PendingNode& pending, Run run) {
  Node& node = *pending.node;
  std::vector<Tensor> flowing(node.inputs.size());
  const bool has_gradient = std::any_of(pending.dys.begin(), pending.dys.end(),
                                        [](const Tensor& dy) { return dy.defined(); });
  if (has_gradient) {
    Context& context = *node.outputs[0].context;
    const ProfileScope profile(context.profiler(), node.name, "backward");
    const NoGradScope no_grad(context);
    NodeRun gradients(node, pending.dys, leaves, run, flowing);
    for (const Node::Function& function : node.functions) {
      if (concerns(node, function, run)) function.run(gradients);
    }
  }
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Edge& edge = node.inputs[i];
    if (edge.node != nullptr && flowing[i].defined()) {
      accumulate(nodes[index.at(edge.node.get())].dys[static_cast<std::size_t>(edge.output)],
                 std::move(flowing[i]));
    }
    if (edge.leaf == nullptr) continue;
    const bool in_this_run = run == Run::kAll || edge.is_weight == (run == Run::kWeights);
    if (in_this_run) leaves.settle(*edge.leaf);
  }
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

  Impl(std::span<const Root> from, BackwardPart part, KeepGraph keep,
       std::span<const Variable> collected);
  void run_node(PendingNode& pending);
};

BackwardPass::Impl::Impl(std::span<const Root> from, BackwardPart which, KeepGraph keep_graph,
                         std::span<const Variable> collected)
    : part(which), keep(keep_graph) {
  engine.leaves.collects = !collected.empty();
  engine.leaves.collected.resize(collected.size());
  for (std::size_t i = 0; i < collected.size(); ++i) {
    engine.leaves.collected_at[collected[i].state().get()] = i;
  }
  for (const Root& root : from) {
    TESSERA_CHECK(root.output.defined() && root.output.takes_gradient(),
                  "backward: the output depends on nothing that takes gradients");
    TESSERA_CHECK(root.output.state()->node != nullptr || root.output.state()->is_leaf,
                  "backward: the output was computed outside grad mode and has no graph");
    roots.push_back(root.output.state());
    if (root.output.state()->node != nullptr) engine.collect(root.output.state()->node);
  }
  engine.order();
  for (const Root& root : from) engine.seed(root);
}

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
    if (keep == KeepGraph::kNo) {
      node.functions.clear();
      node.is_released = true;
    }
  }
  pending = {};
}

BackwardPass::BackwardPass(std::span<const Root> roots, BackwardPart part, KeepGraph keep)
    : impl_(std::make_unique<Impl>(roots, part, keep, std::span<const Variable>{})) {
  TESSERA_CHECK(part == BackwardPart::kAll || keep == KeepGraph::kNo,
                "a kInput pass releases its graph; KeepGraph::kYes needs BackwardPart::kAll");
}

BackwardPass::BackwardPass(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

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
    pending.node->functions.clear();
    pending.node->is_released = true;
    pending = {};
  }
}

void backward(std::span<const Root> roots, KeepGraph keep) {
  BackwardPass(roots, BackwardPart::kAll, keep).run();
}

void backward(const Variable& output, const Tensor& gradient, KeepGraph keep) {
  const Root root{output, gradient};
  backward(std::span<const Root>(&root, 1), keep);
}

std::vector<Tensor> gradients(std::span<const Root> roots, std::span<const Variable> leaves,
                              KeepGraph keep) {
  if (leaves.empty()) return {};
  BackwardPass pass(std::make_unique<BackwardPass::Impl>(roots, BackwardPart::kAll, keep, leaves));
  pass.run();
  return std::move(pass.impl_->engine.leaves.collected);
}

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/recompute.hpp"

#include <algorithm>
#include <numeric>

#include "nested.hpp"
#include "state.hpp"
#include "tessera/autograd/op.hpp"
#include "tessera/core/context.hpp"

namespace tessera::autograd {
namespace {

using States = std::vector<std::shared_ptr<VariableState>>;

/// Collects the leaves that ops touch while it lives; an outer scope sees them too.
class TouchScope {
 public:
  TouchScope(AutogradState& state, States& touched) : state_(state), previous_(state.touched) {
    state.touched = &touched;
  }
  ~TouchScope() { state_.touched = previous_; }
  TouchScope(const TouchScope&) = delete;
  TouchScope& operator=(const TouchScope&) = delete;

 private:
  AutogradState& state_;
  States* previous_;
};

class OriginScope {
 public:
  OriginScope(Context& context, const Context::BatchOrigin& origin)
      : context_(context), previous_(context.batch_origin()) {
    context.set_batch_origin(origin);
  }
  ~OriginScope() { context_.set_batch_origin(previous_); }
  OriginScope(const OriginScope&) = delete;
  OriginScope& operator=(const OriginScope&) = delete;

 private:
  Context& context_;
  Context::BatchOrigin previous_;
};

TakesGradient takes_of(const Variable& variable) {
  return variable.takes_gradient() ? TakesGradient::kYes : TakesGradient::kNo;
}

void unique_in_order(States& states) {
  States unique;
  for (auto& state : states) {
    if (std::find(unique.begin(), unique.end(), state) == unique.end()) {
      unique.push_back(std::move(state));
    }
  }
  states = std::move(unique);
}

/// What the node keeps: the region, its inputs, and which outputs it had.
struct Recomputation {
  Region region;
  std::vector<Saved> inputs;
  std::vector<ShardingType> types;
  std::vector<TakesGradient> takes;
  std::vector<Variable> leaves;  ///< parameters and other Variables used inside, made outside
  std::size_t output_count = 0;
  Context::BatchOrigin origin;

  void run(Gradients& gradients_of, Context& context) const {
    std::vector<Variable> again;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      again.emplace_back(inputs[i].get(), types[i], takes[i]);
    }
    std::vector<Variable> outputs;
    {
      const GradModeScope grad_mode(context, true);
      const OriginScope batch(context, origin);
      outputs = region(again);
    }
    TESSERA_CHECK(
        outputs.size() == output_count,
        "recompute: the region returned {} outputs at first and {} when run again; it must "
        "be a pure function of its inputs",
        output_count, outputs.size());
    std::vector<Root> roots;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].takes_gradient()) {
        roots.push_back({outputs[i], gradients_of.dy(static_cast<int>(i))});
      }
    }
    std::vector<Variable> wanted = again;
    wanted.insert(wanted.end(), leaves.begin(), leaves.end());
    backward_into(gradients_of, roots, wanted, KeepGraph::kNo);
  }
};

}  // namespace

std::vector<Variable> recompute(const Region& region, std::span<const Variable> inputs) {
  TESSERA_CHECK(!inputs.empty(), "recompute: a region needs at least one input");
  Context& context = inputs[0].context();
  if (!context.records_gradients()) return region(inputs);

  // The region sees stand-ins of its inputs, as it will in backward; an input that it also captures
  // is then told apart.
  std::vector<Variable> stand_ins;
  for (const Variable& input : inputs) {
    stand_ins.emplace_back(input.value(), input.type(), takes_of(input));
    stand_ins.back().state()->name = input.name();
  }
  States touched;
  std::vector<Variable> outputs;
  {
    const NoGradScope no_grad(context);
    const TouchScope touch(context.extension<AutogradState>(), touched);
    outputs = region(stand_ins);
  }
  for (const Variable& output : outputs) {  // handed through untouched
    const VariableState& state = *output.state();
    if (state.takes_gradient && (state.is_leaf || state.node != nullptr)) {
      touched.push_back(output.state());
    }
  }
  unique_in_order(touched);
  for (const Variable& stand_in : stand_ins) std::erase(touched, stand_in.state());
  auto again = std::make_shared<Recomputation>();
  again->region = region;
  again->output_count = outputs.size();
  again->origin = context.batch_origin();
  std::vector<Variable> operands(inputs.begin(), inputs.end());
  for (const Variable& input : inputs) {
    again->inputs.emplace_back(input);
    again->types.push_back(input.type());
    again->takes.push_back(takes_of(input));
  }
  for (auto& state : touched) {
    again->leaves.emplace_back(state);
    operands.emplace_back(state);
  }
  std::vector<int> all(operands.size());
  std::iota(all.begin(), all.end(), 0);
  TESSERA_CHECK(all.size() <= 64, "recompute: at most 64 inputs and parameters per region, not {}",
                all.size());
  Op op("recompute", operands, DeclaredType{});
  op.gradient(all, [again, &context](Gradients& g) { again->run(g, context); });
  std::vector<Tensor> values;
  std::vector<ShardingType> types;
  for (const Variable& output : outputs) {
    values.push_back(output.value());
    types.push_back(output.type());
  }
  return op.outputs(values, types);
}

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
// The backward engine: accumulation, order, hooks, buffers, what is refused.
#include <gtest/gtest.h>

#include "graph.hpp"
#include "tessera/autograd/add.hpp"
#include "tessera/autograd/anomaly.hpp"
#include "tessera/autograd/cast.hpp"
#include "tessera/autograd/embedding.hpp"
#include "tessera/autograd/narrow.hpp"
#include "tessera/autograd/on_gradient.hpp"
#include "tessera/autograd/op.hpp"
#include "tessera/autograd/permute.hpp"
#include "tessera/autograd/scale.hpp"
#include "tessera/autograd/sum.hpp"
#include "tessera/ops/add.hpp"
#include "tessera/ops/scale.hpp"

namespace tessera::autograd {
namespace {

using testing::gelu;
using testing::is_same;
using testing::leaf;
using testing::noise_tensor;
using testing::parameter;
using testing::weighed;

class EngineTest : public ::testing::Test {
 protected:
  std::shared_ptr<Context> context_ = Context::create();
};

/// The message of the Error that `f` throws; empty when it throws none.
template <typename F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

TEST_F(EngineTest, VariableUsedTwiceGetsTheSum) {
  const Variable x = leaf(*context_, {3}, 1);
  backward(sum(add(scale(x, 2.0), scale(x, 5.0))));
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(3, 7.0));
}

TEST_F(EngineTest, DiamondRunsEveryNodeOnce) {
  const Variable x = leaf(*context_, {2}, 1);
  int runs = 0;
  Variable y = on_gradient(x, [&runs](const Tensor&) { ++runs; });
  for (int i = 0; i < 20; ++i) y = add(y, y);
  backward(sum(y));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(2, 1048576.0));
}

TEST_F(EngineTest, PassesAccumulateAndZeroGradForgets) {
  Variable x = leaf(*context_, {3}, 1);
  backward(sum(scale(x, 2.0)));
  backward(sum(scale(x, 3.0)));
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(3, 5.0));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  backward(sum(scale(x, 4.0)));
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(3, 4.0));
}

TEST_F(EngineTest, GradBufferIsOverwrittenAfterZeroGrad) {
  Variable w = parameter(*context_, {2, 3}, 1, "w");
  const Tensor buffer = Tensor::empty(*context_, {2, 3}, DType::kF64);
  ops::fill(buffer, 1e300);
  w.set_grad_buffer(buffer);
  const Variable x = leaf(*context_, {4, 3}, 2);
  backward(sum(linear(x, w)));
  const auto first = buffer.to_vector<double>();
  w.zero_grad();
  backward(sum(linear(x, w)));
  EXPECT_EQ(buffer.to_vector<double>(), first);
  EXPECT_TRUE(w.grad().shares_storage(buffer));
}

TEST_F(EngineTest, GradBufferMustFit) {
  Variable w = parameter(*context_, {2, 3}, 1, "w");
  EXPECT_THROW(w.set_grad_buffer(Tensor::empty(*context_, {3, 2}, DType::kF64)), Error);
  EXPECT_THROW(w.set_grad_buffer(Tensor::empty(*context_, {2, 3}, DType::kF32)), Error);
  EXPECT_THROW(w.set_grad_buffer(Tensor::empty(*context_, {3, 2}, DType::kF64).permute({1, 0})),
               Error);
}

TEST_F(EngineTest, GradientsLieInTheGradientCategory) {
  const Variable w = parameter(*context_, {16, 16}, 1, "w");
  const std::size_t before = context_->memory().current(MemoryCategory::kGradient);
  backward(sum(w));
  EXPECT_EQ(context_->memory().current(MemoryCategory::kGradient), before + 16 * 16 * 8);
}

TEST_F(EngineTest, LowPrecisionWeightsAccumulateInTheirGradDType) {
  const Variable w = Variable::parameter(
      ops::cast(noise_tensor(*context_, {3, 4}, 1), DType::kBF16), {}, "w", DType::kF32);
  const Variable x = leaf(*context_, {2, 4}, 2, DType::kF32);
  for (int pass = 0; pass < 2; ++pass) backward(sum(linear(x, cast(w, DType::kF32))));
  EXPECT_EQ(w.grad().dtype(), DType::kF32);
}

TEST_F(EngineTest, NodesRunInTheReverseOrderOfTheirCreation) {
  std::vector<int> order;
  const auto mark = [&order](const Variable& v, int which) {
    return on_gradient(v, [&order, which](const Tensor&) { order.push_back(which); });
  };
  const Variable x = leaf(*context_, {2}, 1);
  const Variable a = mark(x, 0);
  const Variable b = mark(x, 1);
  const Variable c = mark(a, 2);
  const Variable d = mark(b, 3);
  backward(sum(add(add(d, c), add(a, b))));
  EXPECT_EQ(order, (std::vector<int>{3, 2, 1, 0}));
}

TEST_F(EngineTest, RunsAreTheSameBitForBit) {
  Tensor first;
  for (int run = 0; run < 3; ++run) {
    const Variable x = leaf(*context_, {7, 5}, 1);
    const Variable w = parameter(*context_, {5, 5}, 2, "w");
    Variable y = x;
    for (int i = 0; i < 4; ++i) y = add(gelu(linear(y, w)), y);
    backward(weighed(y));
    if (run == 0) first = w.grad();
    EXPECT_TRUE(is_same(w.grad(), first));
  }
}

TEST_F(EngineTest, ReadyHookFiresOnceAfterTheLastUse) {
  Variable table = parameter(*context_, {6, 4}, 1, "table");  // tied: embedding and output
  const Variable ids(Tensor::from(*context_, {3}, std::vector<std::int32_t>{0, 5, 5}));
  const auto loss = [&] { return weighed(linear(gelu(embedding(table, ids)), table)); };
  backward(loss());
  const Tensor whole = ops::copy(table.grad());
  table.zero_grad();
  int fired = 0;
  table.set_grad_ready_hook([&] {
    ++fired;
    EXPECT_TRUE(is_same(table.grad(), whole));
  });
  backward(loss());
  EXPECT_EQ(fired, 1);
}

TEST_F(EngineTest, ReadyHooksFireInTheOrderOfBackward) {
  std::vector<std::string> order;
  std::vector<Variable> weights;
  Variable y = leaf(*context_, {2, 3}, 1);
  for (const char* name : {"a", "b", "c"}) {
    weights.push_back(parameter(*context_, {3, 3}, 7, name));
    weights.back().set_grad_ready_hook([&order, name] { order.emplace_back(name); });
    y = linear(y, weights.back());
  }
  backward(sum(y));
  EXPECT_EQ(order, (std::vector<std::string>{"c", "b", "a"}));
}

TEST_F(EngineTest, ReadyHookFiresForAParameterBehindConversions) {
  int fired = 0;
  Variable w = parameter(*context_, {3, 4}, 1, "w");
  w.set_grad_ready_hook([&] { ++fired; });
  const Variable x = leaf(*context_, {2, 3}, 2);
  const Variable turned = permute(w, {1, 0});
  backward(sum(add(linear(x, turned), linear(x, narrow(turned, 0, 0, 1)))));
  EXPECT_EQ(fired, 1);
}

TEST_F(EngineTest, ReadyHookFiresWhenALeafIsItselfTheRoot) {
  int fired = 0;
  Variable x = leaf(*context_, {}, 1);
  x.set_grad_ready_hook([&] { ++fired; });
  backward(x);
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(x.grad().item(), 1.0);
}

TEST_F(EngineTest, HookCanReadAGradientThatLaterSumsDoNotChange) {
  Tensor seen;
  const Variable x = leaf(*context_, {3}, 1);
  const Variable y = scale(x, 1.0);
  const Variable held = on_gradient(y, [&seen](const Tensor& dy) { seen = dy; });
  backward(sum(add(scale(y, 10.0), scale(held, 3.0))));
  EXPECT_EQ(seen.to_vector<double>(), std::vector<double>(3, 3.0));
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(3, 13.0));
}

TEST_F(EngineTest, RootGradientIsNotChanged) {
  const Variable x = leaf(*context_, {3}, 1);
  const Tensor seed = noise_tensor(*context_, {3}, 5);
  const auto before = seed.to_vector<double>();
  const Variable y = scale(x, 2.0);
  const Root roots[] = {{y, seed}, {y, seed}, {add(y, y), seed}};
  backward(roots);
  EXPECT_EQ(seed.to_vector<double>(), before);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(x.grad().to_vector<double>()[i], 8.0 * before[i]);
  }
}

TEST_F(EngineTest, RootMustFitItsGradient) {
  const Variable y = scale(leaf(*context_, {3}, 1), 2.0);
  EXPECT_NE(message_of([&] { backward(y); }).find("[3]"), std::string::npos);
  EXPECT_THROW(backward(y, noise_tensor(*context_, {2}, 5)), Error);
  EXPECT_THROW(backward(y, noise_tensor(*context_, {3}, 5, DType::kF32)), Error);
}

TEST_F(EngineTest, OutputWithoutAGraphIsRejected) {
  EXPECT_THROW(backward(Variable(noise_tensor(*context_, {}, 1))), Error);
  const Variable x = leaf(*context_, {}, 1);
  Variable y;
  {
    const NoGradScope no_grad(*context_);
    y = scale(x, 2.0);
  }
  EXPECT_NE(message_of([&] { backward(y); }).find("outside grad mode"), std::string::npos);
}

TEST_F(EngineTest, ReleasedGraphIsRejectedByName) {
  const Variable x = leaf(*context_, {2}, 1);
  const Variable y = sum(gelu(x));
  backward(y);
  EXPECT_NE(message_of([&] { backward(y); }).find("KeepGraph"), std::string::npos);
  EXPECT_NE(message_of([&] { backward(y); }).find("sum"), std::string::npos);
}

TEST_F(EngineTest, KeptGraphRunsAgain) {
  const Variable x = leaf(*context_, {2}, 1);
  const Variable y = sum(scale(x, 3.0));
  backward(y, {}, KeepGraph::kYes);
  backward(y);
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(2, 6.0));
}

TEST_F(EngineTest, BackwardReleasesActivations) {
  const Variable x = leaf(*context_, {64, 64}, 1);
  const std::size_t before = context_->memory().current(MemoryCategory::kActivation);
  const Variable loss = sum(gelu(gelu(gelu(x))));
  EXPECT_GE(context_->memory().current(MemoryCategory::kActivation), before + 2 * 64 * 64 * 8);
  backward(loss);
  EXPECT_LE(context_->memory().current(MemoryCategory::kActivation), before + 64);
}

TEST_F(EngineTest, LinearOpsSaveNothing) {
  const Variable x = leaf(*context_, {64, 64}, 1);
  const std::size_t before = context_->memory().current(MemoryCategory::kActivation);
  const Variable y = scale(add(scale(x, 2.0), x), 3.0);
  EXPECT_EQ(context_->memory().current(MemoryCategory::kActivation), before + 64 * 64 * 8);
}

TEST_F(EngineTest, LongChainsNeedNoStack) {
  const Variable x = leaf(*context_, {1}, 1);
  Variable y = x;
  for (int i = 0; i < 100000; ++i) y = scale(y, 1.0);
  backward(y, {}, KeepGraph::kYes);
  EXPECT_EQ(x.grad().item(), 1.0);
  y = Variable();  // releases the chain, unrun
  y = x;
  for (int i = 0; i < 100000; ++i) y = scale(y, 1.0);
  backward(y);
  EXPECT_EQ(x.grad().item(), 2.0);
}

TEST_F(EngineTest, GradientsAreReturnedAndNothingElseHappens) {
  Variable w = parameter(*context_, {3, 3}, 1, "w");
  w.set_grad_ready_hook([] { FAIL(); });
  const Variable x = leaf(*context_, {2, 3}, 2);
  const Variable other = leaf(*context_, {2, 3}, 3);
  const Root root{weighed(add(linear(gelu(linear(x, w)), w), x)), {}};
  const Variable wanted[] = {w, other, x, w};
  const std::vector<Tensor> found = gradients({&root, 1}, wanted, KeepGraph::kYes);
  EXPECT_FALSE(w.grad().defined());
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(found[1].defined());
  EXPECT_TRUE(is_same(found[0], found[3]));
  w.set_grad_ready_hook({});
  backward({&root, 1});
  EXPECT_TRUE(is_same(found[0], w.grad()));
  EXPECT_TRUE(is_same(found[2], x.grad()));
}

TEST_F(EngineTest, GradientsOfAnInnerVariableCutTheGraph) {
  const Variable x = leaf(*context_, {2}, 1);
  const Variable y = scale(x, 2.0);
  const Root root{sum(scale(add(y, y), 3.0)), {}};
  const Variable wanted[] = {y, x};
  const std::vector<Tensor> found = gradients({&root, 1}, wanted);
  EXPECT_EQ(found[0].to_vector<double>(), std::vector<double>(2, 6.0));
  EXPECT_FALSE(found[1].defined());
  backward(y, found[0]);  // what lies behind the cut is untouched
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(2, 12.0));
}

TEST_F(EngineTest, StaleSavedTensorsAreRejected) {
  const Variable x = leaf(*context_, {3}, 1);
  const Variable y = sum(gelu(x));
  ops::scale_(x.value(), 2.0);
  EXPECT_NE(message_of([&] { backward(y); }).find("changed in place"), std::string::npos);
}

TEST_F(EngineTest, PackHookStoresAndRestores) {
  const Variable x = leaf(*context_, {5, 4}, 1);
  const Variable w = parameter(*context_, {4, 4}, 2, "w");
  backward(weighed(gelu(linear(x, w))));
  const Tensor plain = ops::copy(w.grad());
  Variable(w).zero_grad();
  int packed = 0;
  int unpacked = 0;
  Variable loss;
  {
    const PackHookScope scope(*context_, [&](const Tensor& tensor) -> std::function<Tensor()> {
      ++packed;
      return [&unpacked, context = context_, shape = tensor.shape(),
              values = tensor.to_vector<double>()] {
        ++unpacked;
        return Tensor::from(*context, shape, values);
      };
    });
    loss = weighed(gelu(linear(x, w)));
    const NoGradScope no_grad(*context_);
    const int before = packed;
    gelu(x);  // records nothing, so packs nothing
    EXPECT_EQ(packed, before);
  }
  EXPECT_GT(packed, 0);
  backward(loss);
  EXPECT_EQ(unpacked, packed);
  EXPECT_TRUE(is_same(w.grad(), plain));
}

TEST_F(EngineTest, RegatherRecipeIsSavedInsteadOfTheParameter) {
  Variable w = parameter(*context_, {4, 4}, 2, "w");
  const Tensor again = ops::copy(w.value());
  int gathered = 0;
  w.state()->regather = [&] {
    ++gathered;
    return again;
  };
  const Variable x = leaf(*context_, {2, 4}, 1);
  const Variable y = sum(linear(x, w));
  ops::fill(w.value(), 0.0);  // the gathered weight is gone after forward
  backward(y);
  EXPECT_EQ(gathered, 1);
  const auto row = x.grad().to_vector<double>();
  const auto values = again.to_vector<double>();
  EXPECT_DOUBLE_EQ(row[0], values[0] + values[4] + values[8] + values[12]);
}

TEST_F(EngineTest, AnomalyNamesTheForwardOp) {
  const AnomalyScope anomaly(*context_);
  const Variable x(Tensor::from(*context_, {3}, std::vector<double>{1.0, 1e308, 2.0}), {},
                   TakesGradient::kYes);
  const std::string message = message_of([&] { gelu(scale(x, 10.0)); });
  EXPECT_NE(message.find("scale forward"), std::string::npos) << message;
  EXPECT_NE(message.find("element 1"), std::string::npos) << message;
  EXPECT_NE(message.find("inf"), std::string::npos) << message;
}

TEST_F(EngineTest, AnomalyNamesTheBackwardOp) {
  const AnomalyScope anomaly(*context_);
  const Variable x(Tensor::from(*context_, {2}, std::vector<double>{0.0, 0.0}), {},
                   TakesGradient::kYes);
  const Variable w = parameter(*context_, {2, 2}, 1, "w");
  const Variable loss = sum(scale(scale(linear(x, w), 1e200), 1e200));
  const std::string message = message_of([&] { backward(loss); });
  EXPECT_NE(message.find("scale backward"), std::string::npos) << message;
}

TEST_F(EngineTest, AnomalyModeEndsWithItsScopeAndChangesNoBit) {
  const auto run = [this](bool with_anomaly) {
    const Variable x = leaf(*context_, {4, 3}, 1);
    const Variable w = parameter(*context_, {5, 3}, 2, "w");
    std::unique_ptr<AnomalyScope> scope;
    if (with_anomaly) scope = std::make_unique<AnomalyScope>(*context_);
    backward(weighed(gelu(linear(x, w))));
    return w.grad();
  };
  EXPECT_TRUE(is_same(run(true), run(false)));
  EXPECT_FALSE(context_->has_observers());
}

TEST_F(EngineTest, OperandsMustLiveInOneContext) {
  const auto other = Context::create();
  EXPECT_THROW(add(leaf(*context_, {2}, 1), leaf(*other, {2}, 1)), Error);
}

TEST_F(EngineTest, UndefinedOperandsAreNamed) {
  EXPECT_NE(message_of([&] {
              const Variable operands[] = {leaf(*context_, {2}, 1), Variable()};
              Op op("pair", operands, DeclaredType{});
            }).find("operand 1"),
            std::string::npos);
}

TEST_F(EngineTest, ProfilerSeesForwardAndBackward) {
  context_->profiler().set_enabled(true);
  backward(sum(gelu(leaf(*context_, {2}, 1))));
  std::vector<std::string> seen;
  for (const auto& event : context_->profiler().events()) {
    seen.push_back(event.name + " " + event.category);
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"gelu op", "sum op", "sum backward", "gelu backward"}));
}

/// A leaf takes a gradient's memory only when nobody else holds it.
TEST(TakenGradientTest, WhatAClosureHoldsIsCopied) {
  const auto context = Context::create();
  const Variable x = leaf(*context, {3}, 1);
  const Tensor held = Tensor::empty(*context, {3}, DType::kF64, MemoryCategory::kGradient);
  ops::fill(held, 2.0);
  Op op("held", {x}, elementwise_rule(1));
  op.gradient({0}, [held](Gradients& g) { g.add(0, held); });
  const Variable y = op.output(ops::copy(x.value()));
  for (int run = 1; run <= 2; ++run) {
    backward(y, noise_tensor(*context, {3}, 1), KeepGraph::kYes);
    EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(3, 2.0 * run));
    EXPECT_EQ(held.to_vector<double>(), std::vector<double>(3, 2.0));
  }
}

TEST(TakenGradientTest, WhatNobodyHoldsIsTaken) {
  const auto context = Context::create();
  const Variable x = leaf(*context, {3}, 1);
  const void* memory = nullptr;
  Op op("given", {x}, elementwise_rule(1));
  op.gradient({0}, [&](Gradients& g) {
    Tensor dx = Tensor::zeros(*context, {3}, DType::kF64, MemoryCategory::kGradient);
    memory = dx.raw();
    g.add(0, std::move(dx));
  });
  backward(op.output(ops::copy(x.value())), noise_tensor(*context, {3}, 1));
  EXPECT_EQ(x.grad().raw(), memory);
}

TEST(ObservedBackwardTest, GradientsComeWithTheDualTypeOfTheirInput) {
  const auto context = Context::create();
  const AxisTable* axes = context->intern_axes(AxisTable{{{"dp", 2, 0}}});
  const Variable x(noise_tensor(*context, {3, 2}, 1), ShardingType(axes, AxisType::shard(0)),
                   TakesGradient::kYes);
  const Variable w(noise_tensor(*context, {4, 2}, 2), ShardingType(axes, AxisType::replicate()),
                   TakesGradient::kYes);
  const Variable y = linear(scale(x, 2.0), w);
  std::vector<std::string> seen;
  context->add_observer(
      [&](OpPhase phase, std::string_view op, const Tensor& value, const ShardingType& type) {
        EXPECT_EQ(phase, OpPhase::kBackward);
        seen.push_back(std::string(op) + value.shape().to_string() + " " + to_string(type));
      });
  backward(y, noise_tensor(*context, {3, 4}, 3));
  EXPECT_EQ(seen, (std::vector<std::string>{"linear[3, 2] dp: S(0 of 6)", "linear[4, 2] dp: P",
                                            "scale[3, 2] dp: S(0 of 6)"}));
}

}  // namespace
}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/context.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera {
namespace {

TEST(ContextTest, CarriesItsOptions) {
  ContextOptions options;
  options.rank = 2;
  options.world_size = 4;
  options.threads = 3;
  options.seed = 17;
  options.numerics = Numerics::kFast;
  options.check_types = false;
  const auto context = Context::create(options);
  EXPECT_EQ(context->rank(), 2);
  EXPECT_EQ(context->world_size(), 4);
  EXPECT_EQ(context->stream().threads(), 3);
  EXPECT_EQ(context->random_key(), RandomKey{17});
  EXPECT_EQ(context->numerics(), Numerics::kFast);
  EXPECT_FALSE(context->checks_types());
}

TEST(ContextTest, IsDeterministicAndCheckedByDefault) {
  const auto context = Context::create();
  EXPECT_EQ(context->numerics(), Numerics::kDeterministic);
  EXPECT_TRUE(context->checks_types());
  EXPECT_EQ(context->stream().threads(), 1);
}

TEST(ContextTest, RejectsARankOutsideTheWorld) {
  for (const auto& [rank, world] : std::vector<std::pair<int, int>>{{-1, 1}, {1, 1}, {0, 0}}) {
    ContextOptions options;
    options.rank = rank;
    options.world_size = world;
    EXPECT_THROW(Context::create(options), Error) << rank << " of " << world;
  }
}

TEST(ContextTest, HasAtLeastOneThread) {
  ContextOptions options;
  options.threads = 0;
  EXPECT_EQ(Context::create(options)->stream().threads(), 1);
}

TEST(ContextTest, MemoryLimitBoundsTensors) {
  ContextOptions options;
  options.memory_limit = 1024;
  const auto context = Context::create(options);
  const Tensor fits = Tensor::empty(*context, {256}, DType::kF32);
  try {
    Tensor::empty(*context, {1}, DType::kF32);
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
}

TEST(ContextTest, ContextsShareNothing) {
  const auto a = Context::create();
  const auto b = Context::create();
  const Tensor x = Tensor::empty(*a, {16}, DType::kF32);
  const NoGradScope no_grad(*a);
  EXPECT_EQ(b->memory().current_total(), 0U);
  EXPECT_TRUE(b->records_gradients());
}

TEST(CategoryScopeTest, NestsAndRestores) {
  const auto context = Context::create();
  EXPECT_EQ(context->category(), MemoryCategory::kActivation);
  {
    const CategoryScope outer(*context, MemoryCategory::kParameter);
    {
      const CategoryScope inner(*context, MemoryCategory::kWorkspace);
      EXPECT_EQ(context->category(), MemoryCategory::kWorkspace);
    }
    EXPECT_EQ(context->category(), MemoryCategory::kParameter);
  }
  EXPECT_EQ(context->category(), MemoryCategory::kActivation);
}

TEST(CategoryScopeTest, RestoresWhenAnExceptionPasses) {
  const auto context = Context::create();
  try {
    const CategoryScope scope(*context, MemoryCategory::kGradient);
    throw Error(ErrorCode::kInternal, "x");
  } catch (const Error&) {
  }
  EXPECT_EQ(context->category(), MemoryCategory::kActivation);
}

TEST(NoGradScopeTest, NestsAndRestores) {
  const auto context = Context::create();
  EXPECT_TRUE(context->records_gradients());
  {
    const NoGradScope outer(*context);
    EXPECT_FALSE(context->records_gradients());
    {
      const GradModeScope inner(*context, true);
      EXPECT_TRUE(context->records_gradients());
    }
    EXPECT_FALSE(context->records_gradients());
  }
  EXPECT_TRUE(context->records_gradients());
}

TEST(ObserverTest, SeesPhaseOpValueAndType) {
  const auto context = Context::create();
  const AxisTable* axes = context->intern_axes(AxisTable{{{"dp", 2, 0}}});
  const Tensor x = Tensor::zeros(*context, {3}, DType::kF32);
  EXPECT_FALSE(context->has_observers());
  int calls = 0;
  context->add_observer(
      [&](OpPhase phase, std::string_view op, const Tensor& value, const ShardingType& type) {
        ++calls;
        EXPECT_EQ(phase, OpPhase::kBackward);
        EXPECT_EQ(op, "gelu");
        EXPECT_TRUE(value.shares_storage(x));
        EXPECT_EQ(to_string(type), "dp: P");
      });
  EXPECT_TRUE(context->has_observers());
  context->notify(OpPhase::kBackward, "gelu", x, ShardingType(axes, AxisType::partial()));
  EXPECT_EQ(calls, 1);
}

TEST(ObserverTest, AreCalledInOrderUntilRemoved) {
  const auto context = Context::create();
  std::string calls;
  const auto add = [&](char name) {
    return context->add_observer([&calls, name](OpPhase, std::string_view, const Tensor&,
                                                const ShardingType&) { calls += name; });
  };
  const int a = add('a');
  const int b = add('b');
  const int c = add('c');
  context->notify(OpPhase::kForward, "add", Tensor(), ShardingType());
  context->remove_observer(b);
  context->remove_observer(b);  // an unknown token is nothing
  context->notify(OpPhase::kForward, "add", Tensor(), ShardingType());
  EXPECT_EQ(calls, "abcac");
  context->remove_observer(a);
  context->remove_observer(c);
  EXPECT_FALSE(context->has_observers());
  EXPECT_NE(add('d'), b);
}

TEST(ObserverTest, MayRemoveItselfAndAddOthers) {
  const auto context = Context::create();
  std::string calls;
  int once = -1;
  once = context->add_observer([&](OpPhase, std::string_view, const Tensor&, const ShardingType&) {
    calls += 'a';
    context->remove_observer(once);
    context->add_observer(
        [&calls](OpPhase, std::string_view, const Tensor&, const ShardingType&) { calls += 'b'; });
  });
  context->notify(OpPhase::kForward, "add", Tensor(), ShardingType());
  EXPECT_EQ(calls, "a");  // the new one sees the next op
  context->notify(OpPhase::kForward, "add", Tensor(), ShardingType());
  EXPECT_EQ(calls, "ab");
}

TEST(ObserverTest, ItsExceptionReachesTheCaller) {
  const auto context = Context::create();
  context->add_observer([](OpPhase, std::string_view op, const Tensor&, const ShardingType&) {
    throw Error(ErrorCode::kNonFinite, std::string(op));
  });
  EXPECT_THROW(context->notify(OpPhase::kForward, "add", Tensor(), ShardingType()), Error);
}

TEST(ExtensionTest, IsOnePerTypeAndContext) {
  struct Counter {
    int value = 5;
  };
  struct Other {
    int value = 6;
  };
  const auto a = Context::create();
  const auto b = Context::create();
  a->extension<Counter>().value = 8;
  EXPECT_EQ(a->extension<Other>().value, 6);
  EXPECT_EQ(a->extension<Counter>().value, 8);
  EXPECT_EQ(b->extension<Counter>().value, 5);
}

TEST(BatchOriginTest, IsWhatWasSet) {
  const auto context = Context::create();
  EXPECT_EQ(context->batch_origin().step, 0U);
  context->set_batch_origin({12, 256});
  EXPECT_EQ(context->batch_origin().step, 12U);
  EXPECT_EQ(context->batch_origin().first_row, 256);
}

}  // namespace
}  // namespace tessera

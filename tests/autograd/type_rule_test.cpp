// SPDX-License-Identifier: Apache-2.0
// Parallel code that is wrong does not run: bugs known from other libraries are rejected when the
// graph is built, with a message that names the op, the axis, the operand types and a way out.
#include "tessera/autograd/type_rule.hpp"

#include <gtest/gtest.h>

#include "graph.hpp"
#include "tessera/autograd/add.hpp"
#include "tessera/autograd/attention.hpp"
#include "tessera/autograd/cross_entropy.hpp"
#include "tessera/autograd/dropout.hpp"
#include "tessera/autograd/embedding.hpp"
#include "tessera/autograd/layer_norm.hpp"
#include "tessera/autograd/narrow.hpp"
#include "tessera/autograd/scale.hpp"
#include "tessera/autograd/sum.hpp"

namespace tessera::autograd {
namespace {

using testing::gelu;

constexpr AxisType kR = AxisType::replicate();
constexpr AxisType kI = AxisType::invariant();
constexpr AxisType kV = AxisType::varying();
constexpr AxisType kP = AxisType::partial();
constexpr AxisType shard(int dim) { return AxisType::shard(dim); }

class TypeRuleTest : public ::testing::Test {
 protected:
  TypeRuleTest() : axes_(context_->intern_axes(AxisTable{{{"dp", 2, 0}, {"tp", 2, 1}}})) {}

  ShardingType types(const AxisType& dp, const AxisType& tp) const {
    return ShardingType(axes_).with(0, dp).with(1, tp);
  }
  Variable value(const Shape& shape, const AxisType& dp, const AxisType& tp) {
    return Variable(testing::noise_tensor(*context_, shape, 1), types(dp, tp), TakesGradient::kYes);
  }
  Variable weight(const Shape& shape, const AxisType& dp, const AxisType& tp,
                  const std::string& name) {
    return Variable::parameter(testing::noise_tensor(*context_, shape, 1), types(dp, tp), name,
                               DType::kF64);
  }
  Variable indices(const Shape& shape, const AxisType& dp, const AxisType& tp) {
    return Variable(Tensor::zeros(*context_, shape, DType::kI32), types(dp, tp));
  }

  /// `build` throws a sharding-type error whose message holds all of `parts`.
  template <typename F>
  void expect_rejected(const F& build, const std::vector<std::string>& parts) {
    try {
      build();
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kShardingType);
      for (const std::string& part : parts) {
        EXPECT_NE(error.message().find(part), std::string::npos)
            << "no \"" << part << "\" in: " << error.message();
      }
    }
  }

  std::shared_ptr<Context> context_ = Context::create();
  const AxisTable* axes_;
};

TEST_F(TypeRuleTest, ResidualAddedToAPendingSumIsRejected) {
  const Variable x = value({4, 6}, shard(0), kR);
  const Variable row_parallel = value({4, 6}, shard(0), kP);
  expect_rejected([&] { add(x, row_parallel); },
                  {"add", "axis tp", "R, P", "once per rank", "P->R"});
}

TEST_F(TypeRuleTest, ProductOfTwoPendingSumsIsRejected) {
  const Variable x = value({4, 6}, kR, kP);
  const Variable w = value({5, 6}, kR, kP);
  expect_rejected([&] { linear(x, w); }, {"linear", "axis tp", "P, P", "P->R"});
}

TEST_F(TypeRuleTest, PendingSumTimesASplitIsRejected) {
  expect_rejected(
      [&] {
        linear(value({4, 6}, kR, kP), value({5, 6}, kR, shard(0)));
      },
      {"linear", "axis tp", "P, S(0 of 10)", "reduce_scatter (P->S)"});
}

TEST_F(TypeRuleTest, NonLinearFunctionsOfAPendingSumAreRejected) {
  const Variable p = value({4, 6}, shard(0), kP);
  const Variable w = weight({6}, kR, kR, "w");
  expect_rejected([&] { gelu(p); }, {"gelu", "axis tp", "P", "not linear", "P->R"});
  expect_rejected([&] { layer_norm(p, w, w); }, {"layer_norm", "axis tp", "P, R (w), R (w)"});
  expect_rejected([&] { cross_entropy(p, indices({4}, shard(0), kR)); },
                  {"cross_entropy", "axis tp"});
  const Variable q = value({2, 3, 2, 4}, shard(0), kP);
  expect_rejected([&] { attention(q, q, q); }, {"attention", "axis tp", "P, P, P"});
}

TEST_F(TypeRuleTest, LinearFunctionsOfAPendingSumPass) {
  const Variable p = value({4, 6}, shard(0), kP);
  EXPECT_EQ(scale(p, 2.0).type()[1], kP);
  EXPECT_EQ(add(p, p).type()[1], kP);
  EXPECT_EQ(linear(p, weight({5, 6}, kR, kR, "w")).type()[1], kP);
}

TEST_F(TypeRuleTest, WeightsThatMeetDataParallelInputUnconvertedAreRejected) {
  const Variable x = value({4, 6}, shard(0), kI);
  expect_rejected(
      [&] {
        linear(x, weight({5, 6}, kI, kI, "layers.0.up"));
      },
      {"linear", "axis dp", "size 2", "S(0 of 8), I (layers.0.up)", "I->R"});
  const Variable norm = weight({6}, kI, kI, "norm");
  expect_rejected([&] { layer_norm(x, norm, norm); }, {"layer_norm", "axis dp", "I->R"});
  expect_rejected(
      [&] {
        embedding(weight({5, 6}, kI, kI, "table"), indices({4}, shard(0), kI));
      },
      {"embedding", "axis dp", "I (table), S(0 of 8)", "I->R"});
  expect_rejected([&] { add(x, weight({6}, kI, kI, "bias")); }, {"add", "axis dp", "I->R"});
}

TEST_F(TypeRuleTest, NormWeightsInsideASequenceRegionMustBeConverted) {
  const Variable x = value({4, 3, 6}, shard(0), shard(1));
  const Variable norm = weight({6}, kR, kI, "norm");
  expect_rejected([&] { layer_norm(x, norm, norm); },
                  {"layer_norm", "axis tp", "S(1 of 6), I (norm)", "I->R"});
  const Variable converted = weight({6}, kR, kR, "norm");
  EXPECT_EQ(layer_norm(x, converted, converted).type(), types(shard(0), shard(1)).over({4, 3, 6}));
}

TEST_F(TypeRuleTest, ColumnParallelInputMustBeConverted) {
  const Variable x = value({4, 6}, kI, kI);
  const Variable w = weight({5, 6}, kI, shard(0), "up");
  expect_rejected([&] { linear(x, w); }, {"linear", "axis tp", "I, S(0 of 10) (up)", "I->R"});
  EXPECT_EQ(linear(value({4, 6}, kI, kR), w).type(), types(kI, shard(1)).over({4, 5}));
}

TEST_F(TypeRuleTest, RowBiasBeforeTheReductionIsRejected) {
  const Variable x = value({4, 6}, kR, shard(1));
  const Variable w = weight({5, 6}, kR, shard(1), "down");
  EXPECT_EQ(linear(x, w).type()[1], kP);
  expect_rejected([&] { linear(x, w, weight({5}, kR, kR, "down.bias")); },
                  {"linear", "axis tp", "P, R (down.bias)", "after the reduction"});
}

TEST_F(TypeRuleTest, MeansOfMeansAreRejected) {
  const Variable logits = value({4, 6}, shard(0), kI);
  const Variable loss = cross_entropy(logits, indices({4}, shard(0), kI));
  EXPECT_EQ(loss.type(), types(kP, kI));
  // Scaling by a local count leaves a pending sum; taking it for the loss is an error, wherever it
  // meets a whole value: a penalty, another loss, a function of it.
  const Variable local_mean = scale(loss, 0.25);
  EXPECT_EQ(local_mean.type(), types(kP, kI));
  expect_rejected([&] { add(local_mean, value({}, kR, kI)); }, {"add", "axis dp", "P, R"});
  expect_rejected([&] { add(local_mean, value({}, kI, kI)); }, {"add", "axis dp", "P, I"});
  expect_rejected([&] { gelu(local_mean); }, {"gelu", "axis dp"});
}

TEST_F(TypeRuleTest, SplitVocabularyCannotEnterAPlainLoss) {
  expect_rejected(
      [&] {
        cross_entropy(value({4, 6}, kI, shard(1)), indices({4}, kI, kI));
      },
      {"cross_entropy", "axis tp", "S(1 of 12)", "whole", "all_gather"});
  expect_rejected(
      [&] {
        embedding(weight({6, 4}, kR, shard(0), "table"), indices({4}, kR, kR));
      },
      {"embedding", "axis tp", "S(0 of 12) (table)", "whole"});
}

TEST_F(TypeRuleTest, SplitNormDimIsRejected) {
  const Variable w = weight({6}, kR, shard(0), "norm");
  expect_rejected(
      [&] {
        layer_norm(value({4, 6}, kR, shard(1)), w, w);
      },
      {"layer_norm", "axis tp", "S(1 of 12)", "all_to_all"});
}

TEST_F(TypeRuleTest, SplitSequenceCannotEnterPlainAttention) {
  const Variable q = value({2, 3, 2, 4}, shard(0), shard(1));
  expect_rejected([&] { attention(q, q, q); }, {"attention", "axis tp", "S(1 of 6)", "whole"});
}

TEST_F(TypeRuleTest, KeyHeadsMustBeSplitInTheGroupsOfTheQueryHeads) {
  const Variable q = value({1, 3, 4, 2}, kI, AxisType::shard(2, 1));
  const Variable k = value({1, 3, 2, 2}, kI, shard(2));
  expect_rejected([&] { attention(q, k, k); }, {"attention", "axis tp", "units"});
  const Variable grouped = value({1, 3, 4, 2}, kI, AxisType::shard(2, 2));
  EXPECT_EQ(attention(grouped, k, k).type()[1], AxisType::shard(2, 2).of(8));
}

TEST_F(TypeRuleTest, DifferentSplitsDoNotMeet) {
  expect_rejected(
      [&] {
        add(value({4, 4}, kR, shard(0)), value({4, 4}, kR, shard(1)));
      },
      {"add", "axis tp", "S(0 of 8), S(1 of 8)", "all_to_all"});
  expect_rejected(
      [&] {
        add(value({4, 4}, kR, shard(0)), value({4, 4}, kR, kR));
      },
      {"add", "axis tp", "S(0 of 8), R", "R->S"});
  expect_rejected(
      [&] {
        add(value({4, 4}, kR, shard(0)), value({4, 4}, kR, AxisType::shard(0, 2)));
      },
      {"add", "S(0 of 8), S(0 of 8, unit 2)"});
}

TEST_F(TypeRuleTest, PiecesOfDifferentWholesDoNotMeet) {
  // Two rows here: the second half of 4, or the end of 5.
  expect_rejected(
      [&] {
        add(value({2, 4}, kR, shard(0)), value({2, 4}, kR, shard(0).of(5)));
      },
      {"add", "axis tp", "S(0 of 4), S(0 of 5)", "another size"});
}

TEST_F(TypeRuleTest, ChunksThatAreNotAlikeMustNameTheWhole) {
  const Variable x = value({2, 6}, kI, shard(0).of(5));
  EXPECT_EQ(gelu(x).type(), types(kI, shard(0).of(5)));
  EXPECT_EQ(reshape(x, {12}).type(), types(kI, AxisType::shard(0, 6).of(30)));
  EXPECT_EQ(reshape(reshape(x, {12}), {2, 2, 3}).type(), types(kI, shard(0).of(5)));
  expect_rejected(
      [&] {
        value({2, 6}, kI, shard(0).of(6));
      },
      {"dim 0", "[2, 6]", "S(0 of 6)", "chunk of 6 elements has 3"});
}

TEST_F(TypeRuleTest, SplitOfOneOperandAloneIsAnErrorOfTypesNotOfShapes) {
  const Variable x = value({4, 3}, kR, shard(1));
  expect_rejected(
      [&] {
        linear(x, weight({5, 6}, kR, kR, "w"));
      },
      {"linear", "axis tp", "S(1 of 6), R (w)", "R->S"});
}

TEST_F(TypeRuleTest, DropoutNeedsAPlaceForEveryElement) {
  for (const AxisType& type : {kV, kP}) {
    expect_rejected(
        [&] {
          dropout(value({4, 6}, kI, type), 0.5, RandomKey{});
        },
        {"dropout", "axis tp", "no global"});
  }
}

TEST_F(TypeRuleTest, NarrowOfASplitDimIsRejected) {
  expect_rejected(
      [&] {
        narrow(value({4, 6}, kI, shard(1)), 1, 0, 2);
      },
      {"narrow", "axis tp", "S(1 of 12)", "whole"});
}

TEST_F(TypeRuleTest, SplitThatDoesNotStayContiguousCannotBeReshaped) {
  expect_rejected(
      [&] {
        reshape(value({4, 6}, kI, shard(1)), {24});
      },
      {"reshape", "axis tp", "S(1 of 12)", "S->R"});
}

TEST_F(TypeRuleTest, LeavesOfDifferentMeshesDoNotMeet) {
  const Variable x(testing::noise_tensor(*context_, {2}, 1));
  expect_rejected([&] { add(x, value({2}, kI, kI)); }, {"add", "no mesh", "dp: I, tp: I"});
}

TEST_F(TypeRuleTest, OperandsWithoutGradientAreRAndIAtWill) {
  const Variable constant(testing::noise_tensor(*context_, {5, 6}, 1), types(kI, kI));
  EXPECT_EQ(linear(value({4, 6}, shard(0), kI), constant).type(), types(shard(0).of(8), kI));
  EXPECT_EQ(linear(value({4, 6}, kR, kP), constant).type(), types(kR, kP));
}

TEST_F(TypeRuleTest, ChecksCanBeSwitchedOff) {
  ContextOptions options;
  options.check_types = false;
  const auto unchecked = Context::create(options);
  const AxisTable* axes = unchecked->intern_axes(*axes_);
  const Variable x(testing::noise_tensor(*unchecked, {2, 3}, 1), ShardingType(axes, kP),
                   TakesGradient::kYes);
  EXPECT_NO_THROW(gelu(x));
}

TEST_F(TypeRuleTest, GradientsHaveTheDualType) {
  const Variable x = value({4, 6}, shard(0), kR);
  const Variable w = weight({5, 6}, kR, shard(0), "w");
  backward(linear(x, w), testing::noise_tensor(*context_, {4, 5}, 2));
  EXPECT_EQ(x.grad_type(), types(shard(0).of(8), kP));
  EXPECT_EQ(w.grad_type(), types(kP, shard(0).of(10)));
}

}  // namespace
}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/recompute.hpp"

#include <gtest/gtest.h>

#include "graph.hpp"
#include "tessera/autograd/add.hpp"
#include "tessera/autograd/dropout.hpp"
#include "tessera/autograd/embedding.hpp"
#include "tessera/autograd/scale.hpp"
#include "tessera/autograd/sum.hpp"

namespace tessera::autograd {
namespace {

using testing::gelu;
using testing::is_same;
using testing::leaf;
using testing::parameter;
using testing::weighed;

using Inputs = std::span<const Variable>;
using Outputs = std::vector<Variable>;

class RecomputeTest : public ::testing::Test {
 protected:
  /// f(inputs), plain or as a recomputed region.
  Outputs run(bool recomputes, const Region& region, const std::vector<Variable>& inputs) {
    return recomputes ? recompute(region, inputs) : region(inputs);
  }

  std::shared_ptr<Context> context_ = Context::create();
  Variable w_ = parameter(*context_, {6, 6}, 1, "w");
};

TEST_F(RecomputeTest, EqualsPlainBitForBitWithDropoutAndTiedWeights) {
  const Variable ids(Tensor::from(*context_, {3}, std::vector<std::int32_t>{0, 5, 5}));
  Tensor gradients_of[2][2];
  for (const bool recomputes : {false, true}) {
    context_->set_batch_origin({7, 12});
    w_.zero_grad();
    const Variable x = leaf(*context_, {3, 6}, 2);
    int fired = 0;
    w_.set_grad_ready_hook([&fired] { ++fired; });
    const Region region = [this](Inputs in) {
      const Variable h = dropout(gelu(linear(in[0], w_)), 0.3, RandomKey{5});
      return Outputs{dropout(linear(h, w_), 0.2, RandomKey{6})};
    };
    Variable y = add(embedding(w_, ids), x);
    for (int layer = 0; layer < 3; ++layer) y = run(recomputes, region, {y})[0];
    const Variable loss = weighed(linear(y, w_));
    context_->set_batch_origin({8, 0});  // the next step has begun: masks must not change
    backward(loss);
    EXPECT_EQ(fired, 1);
    gradients_of[recomputes ? 1 : 0][0] = w_.grad();
    gradients_of[recomputes ? 1 : 0][1] = x.grad();
    EXPECT_EQ(context_->batch_origin().step, 8U);
  }
  EXPECT_TRUE(is_same(gradients_of[0][0], gradients_of[1][0]));
  EXPECT_TRUE(is_same(gradients_of[0][1], gradients_of[1][1]));
}

TEST_F(RecomputeTest, KeepsOnlyTheInputs) {
  const Variable x = leaf(*context_, {64, 64}, 2);
  const std::size_t before = context_->memory().current(MemoryCategory::kActivation);
  const Region region = [](Inputs in) { return Outputs{gelu(gelu(gelu(gelu(in[0]))))}; };
  const Variable y = recompute(region, {&x, 1})[0];
  EXPECT_EQ(context_->memory().current(MemoryCategory::kActivation), before + 64 * 64 * 8);
}

TEST_F(RecomputeTest, RunsTheRegionTwiceWithGradientsAndOnceWithout) {
  int runs = 0;
  const Region region = [&runs](Inputs in) {
    ++runs;
    return Outputs{gelu(in[0])};
  };
  const Variable x = leaf(*context_, {3}, 2);
  backward(sum(recompute(region, {&x, 1})[0]));
  EXPECT_EQ(runs, 2);
  const NoGradScope no_grad(*context_);
  recompute(region, {&x, 1});
  EXPECT_EQ(runs, 3);
}

TEST_F(RecomputeTest, HandlesSeveralInputsAndOutputs) {
  const Region region = [this](Inputs in) {
    const Variable h = linear(add(in[0], in[1]), w_);
    return Outputs{gelu(h), scale(in[1], 2.0), h};
  };
  std::vector<Tensor> found[2];
  for (const bool recomputes : {false, true}) {
    w_.zero_grad();
    const Variable a = leaf(*context_, {2, 6}, 3);
    const Variable b = leaf(*context_, {2, 6}, 4);
    const Outputs out = run(recomputes, region, {a, b});
    backward(weighed(add(out[0], out[1])));  // out[2] is not used
    found[recomputes ? 1 : 0] = {a.grad(), b.grad(), w_.grad()};
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(is_same(found[0][i], found[1][i])) << i;
}

TEST_F(RecomputeTest, HandlesOneVariableTwiceAndAnInputHandedThrough) {
  const Region region = [](Inputs in) { return Outputs{gelu(add(in[0], in[1])), in[0]}; };
  Tensor found[2];
  for (const bool recomputes : {false, true}) {
    const Variable x = leaf(*context_, {5}, 3);
    const Outputs out = run(recomputes, region, {x, x});
    backward(weighed(add(out[0], out[1])));
    found[recomputes ? 1 : 0] = x.grad();
  }
  EXPECT_TRUE(is_same(found[0], found[1]));
}

TEST_F(RecomputeTest, CapturedVariablesGetTheirGradients) {
  Tensor found[2][2];
  for (const bool recomputes : {false, true}) {
    w_.zero_grad();
    const Variable x = leaf(*context_, {2, 6}, 3);
    const Variable outside = scale(x, 1.5);     // made before the region, by an op
    const Variable converted = scale(w_, 0.5);  // likewise from a weight
    const Region region = [&](Inputs in) {
      return Outputs{gelu(add(linear(in[0], converted), outside)), outside};
    };
    const Outputs out = run(recomputes, region, {scale(x, 2.0)});
    backward(weighed(add(add(out[0], out[1]), outside)));
    found[recomputes ? 1 : 0][0] = x.grad();
    found[recomputes ? 1 : 0][1] = w_.grad();
  }
  EXPECT_TRUE(is_same(found[0][0], found[1][0]));
  EXPECT_TRUE(is_same(found[0][1], found[1][1]));
}

TEST_F(RecomputeTest, InputThatIsAlsoCapturedGetsBothGradients) {
  Tensor found[2];
  for (const bool recomputes : {false, true}) {
    w_.zero_grad();
    const Region region = [this](Inputs in) { return Outputs{gelu(linear(in[0], w_))}; };
    backward(weighed(run(recomputes, region, {w_})[0]));
    found[recomputes ? 1 : 0] = w_.grad();
  }
  EXPECT_TRUE(is_same(found[0], found[1]));
}

TEST_F(RecomputeTest, Nests) {
  const Region inner = [this](Inputs in) { return Outputs{gelu(linear(in[0], w_))}; };
  const auto outer = [this, &inner](bool recomputes) -> Region {
    return [this, &inner, recomputes](Inputs in) {
      const Variable h = run(recomputes, inner, {in[0]})[0];
      return Outputs{run(recomputes, inner, {h})[0]};
    };
  };
  Tensor found[2][2];
  for (const bool recomputes : {false, true}) {
    w_.zero_grad();
    const Variable x = leaf(*context_, {3, 6}, 3);
    backward(weighed(run(recomputes, outer(recomputes), {x})[0]));
    found[recomputes ? 1 : 0][0] = x.grad();
    found[recomputes ? 1 : 0][1] = w_.grad();
  }
  EXPECT_TRUE(is_same(found[0][0], found[1][0]));
  EXPECT_TRUE(is_same(found[0][1], found[1][1]));
}

TEST_F(RecomputeTest, ParametersInsideARegionOfPlainInputsGetGradients) {
  const Variable data(testing::noise_tensor(*context_, {3, 6}, 3));  // takes no gradient
  const Region region = [this](Inputs in) { return Outputs{linear(in[0], w_)}; };
  backward(weighed(recompute(region, {&data, 1})[0]));
  const Tensor found = w_.grad();
  w_.zero_grad();
  backward(weighed(linear(data, w_)));
  EXPECT_TRUE(is_same(found, w_.grad()));
}

TEST_F(RecomputeTest, ImpureRegionsAreRejected) {
  int runs = 0;
  const Region region = [&runs](Inputs in) {
    return ++runs == 1 ? Outputs{gelu(in[0])} : Outputs{gelu(in[0]), in[0]};
  };
  const Variable x = leaf(*context_, {3}, 2);
  const Variable y = sum(recompute(region, {&x, 1})[0]);
  EXPECT_THROW(backward(y), Error);
}

TEST_F(RecomputeTest, RejectsARegionWithoutInputs) {
  EXPECT_THROW(recompute([](Inputs) { return Outputs{}; }, {}), Error);
}

}  // namespace
}  // namespace tessera::autograd

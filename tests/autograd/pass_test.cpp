// SPDX-License-Identifier: Apache-2.0
// Backward passes in parts: input gradients first, weights later; boundaries; two at a time.
#include <gtest/gtest.h>

#include "graph.hpp"
#include "tessera/autograd/add.hpp"
#include "tessera/autograd/attention.hpp"
#include "tessera/autograd/cast.hpp"
#include "tessera/autograd/embedding.hpp"
#include "tessera/autograd/layer_norm.hpp"
#include "tessera/autograd/permute.hpp"
#include "tessera/autograd/recompute.hpp"
#include "tessera/autograd/scale.hpp"

namespace tessera::autograd {
namespace {

using testing::gelu;
using testing::is_same;
using testing::leaf;
using testing::noise_tensor;
using testing::parameter;
using testing::weighed;

/// A small block with tied, converted and shared weights.
struct Block {
  explicit Block(Context& context)
      : norm_w(parameter(context, {6}, 1, "norm.w")),
        norm_b(parameter(context, {6}, 2, "norm.b")),
        up(parameter(context, {12, 6}, 3, "up")),
        up_b(parameter(context, {12}, 4, "up.b")),
        tied(parameter(context, {6, 12}, 5, "tied")) {}

  Variable body(const Variable& x) const {
    const Variable h = gelu(linear(layer_norm(x, norm_w, norm_b), up, up_b));
    const Variable low = add(x, linear(h, tied));  // tied as itself
    return add(low, linear(gelu(linear(low, permute(tied, {1, 0}))), tied));
  }
  std::vector<Variable> parameters() const { return {norm_w, norm_b, up, up_b, tied}; }
  std::vector<Tensor> take_gradients() {
    std::vector<Tensor> result;
    for (Variable& p : all) {
      result.push_back(p.grad());
      p.zero_grad();
    }
    return result;
  }

  Variable norm_w, norm_b, up, up_b, tied;
  std::vector<Variable> all = parameters();
};

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(is_same(a[i], b[i])) << i;
}

class PassTest : public ::testing::Test {
 protected:
  std::shared_ptr<Context> context_ = Context::create();
  Block block_{*context_};
};

std::vector<Tensor> split_pass(Block& block, const Variable& loss, int* fired_early,
                               int* fired_late) {
  int fired = 0;
  for (Variable& p : block.all) p.set_grad_ready_hook([&fired] { ++fired; });
  const Root root{loss, {}};
  BackwardPass pass({&root, 1}, BackwardPart::kInput);
  pass.run();
  DeferredWeights weights = pass.take_deferred();
  *fired_early = fired;
  EXPECT_FALSE(weights.empty());
  weights.run();
  EXPECT_TRUE(weights.empty());
  *fired_late = fired - *fired_early;
  for (Variable& p : block.all) p.set_grad_ready_hook({});
  return block.take_gradients();
}

TEST_F(PassTest, InputThenWeightsEqualsAWholePassBitForBit) {
  const Variable x = leaf(*context_, {4, 6}, 9);
  backward(weighed(block_.body(x)));
  const std::vector<Tensor> whole = block_.take_gradients();
  const Tensor dx = x.grad();
  const Variable again = leaf(*context_, {4, 6}, 9);
  int early = 0;
  int late = 0;
  expect_same(split_pass(block_, weighed(block_.body(again)), &early, &late), whole);
  EXPECT_TRUE(is_same(again.grad(), dx));
  EXPECT_EQ(early, 0);
  EXPECT_EQ(late, 5);
}

TEST_F(PassTest, InputPassMakesNoWeightGradient) {
  const Variable x = leaf(*context_, {4, 6}, 9);
  const Root root{weighed(block_.body(x)), {}};
  BackwardPass pass({&root, 1}, BackwardPart::kInput);
  pass.run();
  EXPECT_TRUE(x.grad().defined());
  for (const Variable& p : block_.all) EXPECT_FALSE(p.grad().defined()) << p.name();
}

TEST_F(PassTest, DeferredWeightsRunOnceAndMayStayUnrun) {
  const Variable x = leaf(*context_, {4, 6}, 9);
  const Root root{weighed(block_.body(x)), {}};
  BackwardPass pass({&root, 1}, BackwardPart::kInput);
  pass.run();
  DeferredWeights weights = pass.take_deferred();
  weights.run();
  const std::vector<Tensor> once = block_.take_gradients();
  weights.run();
  for (const Variable& p : block_.all) EXPECT_FALSE(p.grad().defined());
  EXPECT_TRUE(pass.take_deferred().empty());
  EXPECT_TRUE(once[0].defined());
}

TEST_F(PassTest, DeferredComesAfterTheWholeInputPass) {
  const Variable x = leaf(*context_, {4, 6}, 9);
  const Root root{weighed(block_.body(x)), {}};
  BackwardPass pass({&root, 1}, BackwardPart::kInput);
  EXPECT_THROW(pass.take_deferred(), Error);
}

TEST_F(PassTest, InputPassCannotKeepItsGraph) {
  const Variable x = leaf(*context_, {4, 6}, 9);
  const Root root{weighed(block_.body(x)), {}};
  EXPECT_THROW(BackwardPass({&root, 1}, BackwardPart::kInput, KeepGraph::kYes), Error);
}

TEST_F(PassTest, DeferredWeightsHoldOnlyWhatWeightsNeed) {
  constexpr std::int64_t kRows = 64;
  constexpr std::size_t kTensor = kRows * kRows * 8;
  const auto now = [this] { return context_->memory().current(MemoryCategory::kActivation); };
  const Variable w = parameter(*context_, {kRows, kRows}, 1, "w");
  std::size_t before = 0;
  DeferredWeights weights;
  {
    Variable x = leaf(*context_, {kRows, kRows}, 2);
    before = now();
    // Saved: x and gelu(...) for the products, and the input of every gelu for gelu alone.
    Variable y = gelu(gelu(gelu(linear(x, w))));
    y = linear(y, w);
    const Root root{y, noise_tensor(*context_, {kRows, kRows}, 3)};
    y = Variable();
    BackwardPass pass({&root, 1}, BackwardPart::kInput);
    pass.run();
    weights = pass.take_deferred();
  }
  // Two products, each with its input and its dy; x was there before.
  EXPECT_LE(now(), before + 3 * kTensor + 4096);
  weights.run();
  EXPECT_LE(now(), before - kTensor + 4096);
}

TEST_F(PassTest, RecomputedRegionsGiveTheirWeightGradientsInAnInputPass) {
  const Variable x = leaf(*context_, {4, 6}, 9);
  backward(weighed(block_.body(x)));
  const std::vector<Tensor> whole = block_.take_gradients();
  const Variable again = leaf(*context_, {4, 6}, 9);
  const auto region = [this](std::span<const Variable> in) {
    return std::vector<Variable>{block_.body(in[0])};
  };
  int early = 0;
  int late = 0;
  expect_same(split_pass(block_, weighed(recompute(region, {&again, 1})[0]), &early, &late), whole);
  EXPECT_TRUE(is_same(again.grad(), x.grad()));
  EXPECT_EQ(early + late, 5);
}

TEST_F(PassTest, RunsUpToABoundary) {
  const Variable x = leaf(*context_, {4, 6}, 9);
  backward(weighed(block_.body(block_.body(x))));
  const Tensor dx = x.grad();
  const std::vector<Tensor> whole = block_.take_gradients();

  const Variable again = leaf(*context_, {4, 6}, 9);
  const Variable middle = block_.body(again);
  Block other(*context_);
  const Variable loss = weighed(other.body(middle));
  const Root root{loss, {}};
  BackwardPass pass({&root, 1});
  pass.run_to(middle);
  for (const Variable& p : other.all) EXPECT_TRUE(p.grad().defined());
  for (const Variable& p : block_.all) EXPECT_FALSE(p.grad().defined());
  EXPECT_FALSE(again.grad().defined());
  pass.run_to(middle);  // nothing left there
  pass.run();
  EXPECT_TRUE(is_same(again.grad(), dx));
}

TEST_F(PassTest, TwoInterleavedPassesEqualTwoInARow) {
  const auto input = [this](std::uint64_t seed) { return leaf(*context_, {4, 6}, seed); };
  std::vector<Tensor> in_a_row;
  {
    backward(weighed(block_.body(block_.body(input(1)))));
    const std::vector<Tensor> first = block_.take_gradients();
    backward(weighed(block_.body(block_.body(input(2)))));
    const std::vector<Tensor> second = block_.take_gradients();
    for (std::size_t i = 0; i < first.size(); ++i) in_a_row.push_back(first[i]);
    for (std::size_t i = 0; i < first.size(); ++i) in_a_row.push_back(second[i]);
  }
  const Variable a = input(1);
  const Variable b = input(2);
  Block other(*context_);  // the same values
  const Variable a_middle = block_.body(a);
  const Variable b_middle = other.body(b);
  const Root a_root{weighed(block_.body(a_middle)), {}};
  const Root b_root{weighed(other.body(b_middle)), {}};
  BackwardPass a_pass({&a_root, 1});
  BackwardPass b_pass({&b_root, 1});
  b_pass.run_to(b_middle);
  a_pass.run_to(a_middle);
  b_pass.run();
  a_pass.run();
  std::vector<Tensor> interleaved = block_.take_gradients();
  for (const Tensor& t : other.take_gradients()) interleaved.push_back(t);
  expect_same(interleaved, in_a_row);
}

TEST_F(PassTest, ForwardOfAnotherMicroBatchMayStandBetweenTheParts) {
  const Variable x = leaf(*context_, {4, 6}, 9);
  const Variable middle = block_.body(x);
  const Root root{weighed(block_.body(middle)), {}};
  BackwardPass pass({&root, 1}, BackwardPart::kInput);
  pass.run_to(middle);
  const Variable y = leaf(*context_, {4, 6}, 10);
  const Variable later = weighed(block_.body(y));
  pass.run();
  DeferredWeights weights = pass.take_deferred();
  backward(later);
  weights.run();
  const std::vector<Tensor> mixed = block_.take_gradients();

  backward(weighed(block_.body(leaf(*context_, {4, 6}, 10))));
  backward(weighed(block_.body(block_.body(leaf(*context_, {4, 6}, 9)))));
  const std::vector<Tensor> plain = block_.take_gradients();
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const auto a = mixed[i].to_vector<double>();
    const auto b = plain[i].to_vector<double>();
    for (std::size_t j = 0; j < a.size(); ++j) EXPECT_NEAR(a[j], b[j], 1e-12);
  }
}

}  // namespace
}  // namespace tessera::autograd

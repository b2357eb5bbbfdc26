// SPDX-License-Identifier: Apache-2.0
#include "tessera/parallel/ddp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "tessera/autograd/linear.hpp"
#include "tessera/autograd/sum.hpp"
#include "tessera/comm/backends.hpp"
#include "tessera/comm/decorators.hpp"
#include "tessera/core/error.hpp"
#include "tessera/optim/adamw.hpp"
#include "tiny_run.hpp"

namespace tessera {
namespace {

using testing::relative_difference;
using testing::tiny_run;
using testing::TinyRunOptions;
using testing::TinyRunResult;

constexpr std::chrono::milliseconds kTimeout{60000};

std::vector<TinyRunResult> run_on(int ranks, const TinyRunOptions& options) {
  std::vector<TinyRunResult> results(static_cast<std::size_t>(ranks));
  comm::run_threads(
      ranks,
      [&](std::shared_ptr<comm::Communicator> world) {
        const auto rank = static_cast<std::size_t>(world->rank());
        results[rank] = tiny_run(std::move(world), options);
      },
      kTimeout);
  return results;
}

class DdpLayouts : public ::testing::TestWithParam<int> {};

TEST_P(DdpLayouts, EqualsOneProcessInF64) {
  const TinyRunOptions options;
  const TinyRunResult one = run_on(1, options)[0];
  const std::vector<TinyRunResult> many = run_on(GetParam(), options);
  // The run is not trivial: it learns, and clipping is active.
  EXPECT_LT(one.losses.back(), one.losses.front());
  EXPECT_GT(*std::max_element(one.norms.begin(), one.norms.end()), options.clip);
  for (const TinyRunResult& rank : many) {
    for (std::size_t s = 0; s < one.losses.size(); ++s) {
      EXPECT_NEAR(rank.losses[s], one.losses[s], 1e-10 * std::abs(one.losses[s])) << "step " << s;
      EXPECT_NEAR(rank.norms[s], one.norms[s], 1e-10 * one.norms[s]) << "step " << s;
    }
    EXPECT_LE(relative_difference(one.gradients, rank.gradients), 1e-10);
    EXPECT_LE(relative_difference(one.weights, rank.weights), 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpLayouts, ::testing::Values(1, 2, 3, 4));

TEST(DdpTest, AccumulationEqualsTheBigBatch) {
  TinyRunOptions accumulated;
  TinyRunOptions big = accumulated;
  big.rows = accumulated.rows * accumulated.accumulation;
  big.accumulation = 1;
  const TinyRunResult a = run_on(2, accumulated)[0];
  const TinyRunResult b = run_on(1, big)[0];
  EXPECT_LE(relative_difference(a.gradients, b.gradients), 1e-10);
  EXPECT_LE(relative_difference(a.weights, b.weights), 1e-10);
}

TEST(DdpTest, IsBitwiseIndependentOfBucketSize) {
  TinyRunOptions options;
  options.dtype = DType::kF32;
  options.steps = 5;
  options.ddp.bucket_bytes = 1;  // one parameter per bucket
  const TinyRunResult small = run_on(3, options)[0];
  for (const std::size_t bytes : {std::size_t{2048}, std::size_t{1} << 30}) {
    options.ddp.bucket_bytes = bytes;
    const TinyRunResult other = run_on(3, options)[0];
    EXPECT_EQ(small.weights, other.weights);
    EXPECT_EQ(small.losses, other.losses);
  }
}

TEST(DdpTest, IsBitwiseIndependentOfInjectedDelays) {
  TinyRunOptions options;
  options.dtype = DType::kF32;
  options.steps = 5;
  options.ddp.bucket_bytes = 2048;
  const TinyRunResult calm = run_on(3, options)[0];
  for (const std::uint64_t seed : {1U, 2U}) {
    std::vector<TinyRunResult> results(3);
    comm::run_threads(
        3,
        [&](std::shared_ptr<comm::Communicator> world) {
          const auto rank = static_cast<std::size_t>(world->rank());
          const comm::DelayOptions delays{seed * 10 + rank, std::chrono::microseconds(1000)};
          results[rank] = tiny_run(comm::delayed(std::move(world), delays), options);
        },
        kTimeout);
    for (const TinyRunResult& late : results) {
      EXPECT_EQ(calm.weights, late.weights);
      EXPECT_EQ(calm.losses, late.losses);
      EXPECT_EQ(calm.norms, late.norms);
    }
  }
}

TEST(DdpTest, StartsReducingBeforeBackwardEnds) {
  TinyRunOptions options;
  options.steps = 2;
  options.traces = true;
  options.ddp.bucket_bytes = 4096;
  for (const TinyRunResult& rank : run_on(2, options)) {
    const Profiler::Event* first_reduce = nullptr;
    const Profiler::Event* last_backward = nullptr;
    for (const Profiler::Event& event : rank.events) {
      if (event.name == "ddp.start_all_reduce" && first_reduce == nullptr) first_reduce = &event;
      if (std::string_view(event.category) == "backward" && event.name != "ddp.start_all_reduce") {
        last_backward = &event;
      }
    }
    ASSERT_NE(first_reduce, nullptr);
    ASSERT_NE(last_backward, nullptr);
    EXPECT_LT(first_reduce->begin, last_backward->begin);
  }
}

TEST(DdpTest, ReducesOncePerStepUnderAccumulation) {
  TinyRunOptions options;
  options.steps = 2;
  options.traces = true;
  options.ddp.bucket_bytes = std::size_t{1} << 30;
  const TinyRunResult rank = run_on(2, options)[0];
  EXPECT_EQ(std::count_if(rank.events.begin(), rank.events.end(),
                          [](const auto& e) { return e.name == "ddp.start_all_reduce"; }),
            1);
}

TEST(DdpTest, MemoryDoesNotGrowOverAThousandSteps) {
  TinyRunOptions options;
  options.steps = 1000;
  options.accumulation = 1;
  options.rows = 2;
  options.dtype = DType::kF32;
  const TinyRunResult rank = run_on(2, options)[0];
  // The last step keeps copies of the gradients for the comparison, so look at the one before.
  EXPECT_EQ(rank.used_bytes[998], rank.used_bytes[0]);
  EXPECT_EQ(rank.cached_bytes[998], rank.cached_bytes[100]);
}

TEST(DdpTest, KeepsRanksBitwiseAlike) {
  TinyRunOptions options;
  options.dtype = DType::kF32;
  options.steps = 5;
  const std::vector<TinyRunResult> ranks = run_on(4, options);
  for (const TinyRunResult& rank : ranks) EXPECT_EQ(rank.weights, ranks[0].weights);
}

TEST(DdpTest, WithoutItTheGraphIsRejected) {
  TinyRunOptions options;
  options.uses_ddp = false;
  try {
    run_on(2, options);
    FAIL() << "training without a data-parallel wrapper must not run";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShardingType);
    EXPECT_NE(error.message().find("dp"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("I->R"), std::string::npos) << error.message();
  }
}

/// A model of which a part is unused.
struct TwoParameters : nn::Module {
  explicit TwoParameters(const nn::BuildContext& build)
      : Module(build),
        used(add_parameter("used", {4, 3}, nn::Init::ones())),
        unused(add_parameter("unused", {5}, nn::Init::ones())) {}
  spmd::ParameterPtr used, unused;
};

TEST(DdpTest, AParameterWithoutGradientOnARankCountsAsZeroThere) {
  comm::run_threads(
      2,
      [](std::shared_ptr<comm::Communicator> world) {
        ContextOptions options;
        options.rank = world->rank();
        options.world_size = 2;
        const auto context = Context::create(options);
        const spmd::AxisSpec axes[] = {{"dp", 2}};
        const spmd::Mesh mesh(*context, world, axes);
        TwoParameters model(nn::BuildContext{context.get(), mesh.axes(), DType::kF64, ""});
        parallel::Ddp ddp(model, mesh, "dp");
        for (int step = 1; step <= 2; ++step) {
          // Rank 1 contributes to "unused" in step 1 only.
          const auto seed = [&](const spmd::ParameterPtr& p) {
            const Tensor ones = Tensor::zeros(*context, p->variable.shape(), DType::kF64);
            for (std::int64_t i = 0; i < ones.numel(); ++i) ones.data<double>()[i] = step;
            const autograd::Root root{p->variable, ones};
            autograd::backward(std::span<const autograd::Root>(&root, 1));
          };
          ddp.begin_last_backward();
          seed(model.used);
          if (world->rank() == 1 && step == 1) seed(model.unused);
          ddp.finish_step();
          EXPECT_EQ(model.used->variable.grad().to_vector<double>(),
                    std::vector<double>(12, 2.0 * step));
          EXPECT_EQ(model.unused->variable.grad().to_vector<double>(),
                    std::vector<double>(5, step == 1 ? 1.0 : 0.0));
          model.used->variable.zero_grad();
          model.unused->variable.zero_grad();
        }
      },
      kTimeout);
}

TEST(DdpTest, TheOptimizerRefusesAGradientThatWasNotReduced) {
  comm::run_threads(
      2,
      [](std::shared_ptr<comm::Communicator> world) {
        ContextOptions options;
        options.rank = world->rank();
        options.world_size = 2;
        const auto context = Context::create(options);
        const spmd::AxisSpec axes[] = {{"dp", 2}};
        const spmd::Mesh mesh(*context, world, axes);
        TwoParameters model(nn::BuildContext{context.get(), mesh.axes(), DType::kF64, ""});
        parallel::Ddp ddp(model, mesh, "dp");
        optim::AdamW optimizer(model.parameters(), {});
        const autograd::Root root{model.used->variable,
                                  Tensor::zeros(*context, {4, 3}, DType::kF64)};
        autograd::backward(std::span<const autograd::Root>(&root, 1));
        try {
          optimizer.step(1e-3);
          ADD_FAILURE() << "a partial gradient was accepted";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kShardingType);
          EXPECT_NE(error.message().find("used"), std::string::npos);
        }
      },
      kTimeout);
}

TEST(DdpTest, ReducesInTheLowerDTypeAndAccumulatesInTheGradients) {
  comm::run_threads(
      2,
      [](std::shared_ptr<comm::Communicator> world) {
        ContextOptions options;
        options.rank = world->rank();
        options.world_size = 2;
        const auto context = Context::create(options);
        const spmd::AxisSpec axes[] = {{"dp", 2}};
        const spmd::Mesh mesh(*context, world, axes);
        TwoParameters model(nn::BuildContext{context.get(), mesh.axes(), DType::kF32, ""});
        parallel::Ddp ddp(model, mesh, "dp", {std::size_t{4} << 20, DType::kBF16});
        const float own = world->rank() == 0 ? 1.00390625F : 2.0F;  // 1 + 2^-8 is 1 in bf16
        const Tensor ones = Tensor::from(*context, {4, 3}, std::vector<float>(12, own));
        const autograd::Root root{model.used->variable, ones};
        autograd::backward(std::span<const autograd::Root>(&root, 1));
        ddp.finish_step();
        EXPECT_EQ(model.used->variable.grad().dtype(), DType::kF32);
        EXPECT_EQ(model.used->variable.grad().to_vector<float>(), std::vector<float>(12, 3.0F));
      },
      kTimeout);
}

/// Runs body(context, mesh, model, ddp) on two ranks.
template <typename Body>
void on_two_ranks(const Body& body) {
  comm::run_threads(
      2,
      [&body](std::shared_ptr<comm::Communicator> world) {
        ContextOptions options;
        options.rank = world->rank();
        options.world_size = 2;
        const auto context = Context::create(options);
        const spmd::AxisSpec axes[] = {{"dp", 2}};
        const spmd::Mesh mesh(*context, world, axes);
        TwoParameters model(nn::BuildContext{context.get(), mesh.axes(), DType::kF64, ""});
        parallel::Ddp ddp(model, mesh, "dp");
        body(*context, mesh, model, ddp);
      },
      kTimeout);
}

/// A backward pass from every element of the parameter.
void seed(const spmd::ParameterPtr& parameter) {
  const autograd::Variable& variable = parameter->variable;
  const autograd::Root root{variable,
                            Tensor::zeros(variable.context(), variable.shape(), variable.dtype())};
  autograd::backward(std::span<const autograd::Root>(&root, 1));
}

void expect_refused(const std::function<void()>& f, ErrorCode code, const std::string& word) {
  try {
    f();
    ADD_FAILURE() << "accepted; expected an error about " << word;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
  }
}

TEST(DdpMisuseTest, AForgottenZeroGradIsRefusedNotReducedTwice) {
  on_two_ranks([](Context&, const spmd::Mesh&, TwoParameters& model, parallel::Ddp& ddp) {
    seed(model.used);
    ddp.finish_step();
    expect_refused([&] { seed(model.used); }, ErrorCode::kShardingType, "zero_grad");
    // A kernel that adds in place meets the same check.
    const Tensor rows = Tensor::zeros(model.context(), {2, 3}, DType::kF64);
    const ShardingType type = ShardingType(model.build().axes).with(0, AxisType::shard(0));
    expect_refused(
        [&] {
          autograd::backward(autograd::sum(
              autograd::linear(autograd::Variable(rows, type), model.used->variable)));
        },
        ErrorCode::kShardingType, "used");
  });
}

TEST(DdpMisuseTest, FinishingTwiceOrWithoutBackwardIsRefused) {
  on_two_ranks([](Context&, const spmd::Mesh&, TwoParameters& model, parallel::Ddp& ddp) {
    expect_refused([&] { ddp.finish_step(); }, ErrorCode::kInvalidArgument, "call backward first");
    seed(model.used);
    ddp.finish_step();
    expect_refused([&] { ddp.finish_step(); }, ErrorCode::kShardingType, "once per step");
  });
}

/// Rows that every rank repeats, typed I: with R weights the loss is R, and each rank would count
/// the whole.
TEST(DdpMisuseTest, ALossOfRepeatedDataIsRefused) {
  on_two_ranks([](Context& context, const spmd::Mesh& mesh, TwoParameters& model, parallel::Ddp&) {
    const autograd::Variable rows(Tensor::zeros(context, {2, 3}, DType::kF64), mesh.invariant());
    const nn::LossTerm terms[] = {
        {"mine", autograd::sum(autograd::linear(rows, model.used->variable)), 2.0}};
    EXPECT_EQ(terms[0].sum.type(), mesh.type("dp", AxisType::replicate()));
    expect_refused([&] { nn::loss_roots(terms); }, ErrorCode::kShardingType, "loss term mine is R");
    expect_refused([&] { autograd::backward(terms[0].sum); }, ErrorCode::kShardingType,
                   "once per rank");
  });
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/comm/decorators.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "conformance.hpp"
#include "tessera/comm/backends.hpp"

namespace tessera {
namespace {

using comm::Communicator;

std::shared_ptr<Communicator> with_delays(std::shared_ptr<Communicator> world,
                                          std::chrono::microseconds longest) {
  const auto seed = static_cast<std::uint64_t>(world->rank()) + 17;
  return comm::delayed(std::move(world), {.seed = seed, .longest = longest});
}

TEST(RanksDecorators, RandomDelaysChangeNoResult) {
  comm::run_threads(
      3,
      [](std::shared_ptr<Communicator> world) {
        testing::expect_conformance(*with_delays(std::move(world), std::chrono::microseconds(300)));
      },
      std::chrono::seconds(60));
}

TEST(RanksDecorators, ADelayIsTaken) {
  comm::run_threads(
      2,
      [](std::shared_ptr<Communicator> world) {
        const auto slow = with_delays(std::move(world), std::chrono::milliseconds(20));
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < 20; ++i) slow->barrier().wait();
        // 40 draws of 5 ms on average per rank.
        EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(60));
      },
      std::chrono::seconds(60));
}

TEST(RanksDecorators, ATraceHasEveryOperationWithItsLabelAndSize) {
  comm::run_threads(
      2,
      [](std::shared_ptr<Communicator> world) {
        const auto context = Context::create();
        Profiler& profiler = context->profiler();
        const auto seen = comm::traced(world, profiler);
        const auto part = seen->split(0, seen->rank());
        part->set_label("dp");
        const Tensor x = Tensor::zeros(*context, {std::int64_t{1} << 20}, DType::kF32);
        part->all_reduce(x).wait();  // not yet enabled
        EXPECT_TRUE(profiler.events().empty());
        profiler.set_enabled(true);
        const comm::Work work = part->all_reduce(x);
        work.wait();
        work.wait();
        part->barrier().wait();
        const auto events = profiler.events();
        ASSERT_EQ(events.size(), 2U);
        EXPECT_EQ(events[0].name, "all_reduce dp 4.0 MiB");
        EXPECT_EQ(events[0].lane, ProfileLane::kCommunication);
        EXPECT_LT(events[0].begin, events[0].end);
        EXPECT_LE(events[0].end, events[1].end);
        EXPECT_EQ(events[1].name, "barrier dp");
      },
      std::chrono::seconds(60));
}

TEST(RanksDecorators, TheEndInATraceIsThatOfTheOperationNotOfTheWait) {
  comm::run_threads(
      2,
      [](std::shared_ptr<Communicator> world) {
        const auto context = Context::create();
        context->profiler().set_enabled(true);
        const auto seen = comm::traced(world, context->profiler());
        const comm::Work work = seen->all_reduce(Tensor::zeros(*context, {100}, DType::kF32));
        std::this_thread::sleep_for(std::chrono::milliseconds(1000));
        work.wait();
        const auto events = context->profiler().events();
        ASSERT_EQ(events.size(), 1U);
        EXPECT_LT(events[0].end - events[0].begin, std::chrono::milliseconds(800));
      },
      std::chrono::seconds(60));
}

}  // namespace
}  // namespace tessera

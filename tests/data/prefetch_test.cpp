// SPDX-License-Identifier: Apache-2.0
#include "tessera/data/prefetch.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "tessera/core/error.hpp"

namespace tessera::data {
namespace {

using std::chrono::milliseconds;

HostBatch number(std::int64_t index) {
  const auto value = static_cast<std::int32_t>(index);
  return {1, 1, {value}, {value + 1}};
}

TEST(PrefetchTest, GivesBatchesInOrder) {
  const auto context = Context::create();
  Prefetch prefetch(*context, number, {5, 100});
  for (int i = 5; i < 105; ++i) {
    const Batch batch = prefetch.next();
    EXPECT_EQ(batch.tokens.to_vector<std::int32_t>()[0], i);
    EXPECT_EQ(batch.targets.to_vector<std::int32_t>()[0], i + 1);
  }
  EXPECT_THROW(prefetch.next(), Error);
}

TEST(PrefetchTest, MakesNoMoreAheadThanItsDepth) {
  const auto context = Context::create();
  std::atomic<int> made{0};
  Prefetch prefetch(*context,
                    [&made](std::int64_t index) {
                      ++made;
                      return number(index);
                    },
                    {0, 50, 3});
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_LE(made, 4);  // three ready, one in the hand
  for (int i = 0; i < 50; ++i) prefetch.next();
  EXPECT_EQ(made, 50);
}

TEST(PrefetchTest, ExceptionComesInThePlaceOfItsBatchAndStays) {
  const auto context = Context::create();
  Prefetch prefetch(*context,
                    [](std::int64_t index) {
                      if (index == 2) throw std::runtime_error("disk on fire");
                      return number(index);
                    },
                    {0, 10});
  prefetch.next();
  prefetch.next();
  for (int i = 0; i < 2; ++i) {
    try {
      prefetch.next();
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "disk on fire");
    }
  }
}

TEST(PrefetchTest, WaitHasADeadline) {
  const auto context = Context::create();
  std::atomic<bool> is_released{false};
  Prefetch prefetch(*context,
                    [&is_released](std::int64_t index) {
                      while (!is_released) std::this_thread::sleep_for(milliseconds(1));
                      return number(index);
                    },
                    {0, 10, 2, milliseconds(20)});
  try {
    prefetch.next();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(error.message().find("batch 0"), std::string::npos);
  }
  is_released = true;
}

TEST(PrefetchTest, StopsWhenItsConsumerGoes) {
  const auto context = Context::create();
  const auto begin = std::chrono::steady_clock::now();
  for (int taken = 0; taken < 3; ++taken) {
    Prefetch prefetch(*context, number, {0, std::int64_t{1} << 40});
    for (int i = 0; i < taken; ++i) prefetch.next();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(PrefetchTest, IsSeenInTheDataLane) {
  const auto context = Context::create();
  context->profiler().set_enabled(true);
  {
    Prefetch prefetch(*context, number, {0, 3});
    for (int i = 0; i < 3; ++i) prefetch.next();
  }
  int seen = 0;
  for (const Profiler::Event& event : context->profiler().events()) {
    seen += event.lane == ProfileLane::kData && event.name == "batch" ? 1 : 0;
  }
  EXPECT_EQ(seen, 3);
}

}  // namespace
}  // namespace tessera::data

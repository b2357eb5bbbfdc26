// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/parallel_for.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera {
namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

Ranges ranges_of(int threads, std::int64_t count, std::int64_t grain) {
  const Stream stream(Device{}, threads);
  std::mutex mutex;
  Ranges ranges;
  parallel_for(stream, count, grain, [&](std::int64_t first, std::int64_t last) {
    const std::lock_guard lock(mutex);
    ranges.emplace_back(first, last);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST(ParallelForTest, CoversTheRangeOnceInRangesOfAtLeastTheGrain) {
  for (const int threads : {1, 2, 3, 7}) {
    for (const std::int64_t count : {1, 2, 5, 11, 64, 1000}) {
      for (const std::int64_t grain : {-1, 0, 1, 4, 10, 2000}) {
        const Ranges ranges = ranges_of(threads, count, grain);
        std::int64_t next = 0;
        for (const auto& [first, last] : ranges) {
          ASSERT_EQ(first, next);
          ASSERT_GE(last - first, std::min(count, std::max<std::int64_t>(grain, 1)));
          next = last;
        }
        ASSERT_EQ(next, count);
        ASSERT_LE(ranges.size(), static_cast<std::size_t>(threads));
      }
    }
  }
}

TEST(ParallelForTest, UsesEveryThreadWhereThereIsWorkForAll) {
  EXPECT_EQ(ranges_of(3, 30, 10), (Ranges{{0, 10}, {10, 20}, {20, 30}}));
}

TEST(ParallelForTest, SplitDependsOnCountAndThreadsOnly) {
  EXPECT_EQ(ranges_of(5, 1234, 7), ranges_of(5, 1234, 7));
}

TEST(ParallelForTest, DoesNothingForAnEmptyRange) {
  EXPECT_TRUE(ranges_of(4, 0, 1).empty());
  EXPECT_TRUE(ranges_of(4, -5, 1).empty());
}

TEST(ParallelForTest, RethrowsTheBodysException) {
  const Stream stream(Device{}, 4);
  for (const std::int64_t bad : {0, 50, 99}) {
    try {
      parallel_for(stream, 100, 1, [bad](std::int64_t first, std::int64_t last) {
        if (first <= bad && bad < last) throw Error(ErrorCode::kNonFinite, "row");
      });
      FAIL() << "no exception";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNonFinite);
    }
  }
}

TEST(ParallelForTest, RethrowsOneOfSeveralExceptionsAndWorksAgain) {
  const Stream stream(Device{}, 4);
  const auto fails = [](std::int64_t, std::int64_t) { throw std::runtime_error("every range"); };
  EXPECT_THROW(parallel_for(stream, 100, 1, fails), std::runtime_error);
  EXPECT_EQ(ranges_of(4, 100, 1).size(), 4U);
}

TEST(ParallelForTest, NestedUseCoversBothRanges) {
  const Stream stream(Device{}, 3);
  std::vector<std::atomic<int>> hits(20 * 30);
  parallel_for(stream, 20, 1, [&](std::int64_t i0, std::int64_t i1) {
    for (std::int64_t i = i0; i < i1; ++i) {
      parallel_for(stream, 30, 1, [&, i](std::int64_t j0, std::int64_t j1) {
        for (std::int64_t j = j0; j < j1; ++j) ++hits[static_cast<std::size_t>(i * 30 + j)];
      });
    }
  });
  for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
}

TEST(ParallelForTest, BodyMayBeChangedByItsCall) {
  struct Counter {
    int calls = 0;
    void operator()(std::int64_t, std::int64_t) { ++calls; }
  };
  Counter counter;
  parallel_for(Stream(Device{}, 1), 10, 1, counter);
  EXPECT_EQ(counter.calls, 1);
}

}  // namespace
}  // namespace tessera

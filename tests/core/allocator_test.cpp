// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/allocator.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera {
namespace {

constexpr auto kActivation = MemoryCategory::kActivation;
constexpr auto kParameter = MemoryCategory::kParameter;

TEST(AllocatorTest, AlignsEveryBlockTo64Bytes) {
  MemoryTracker books;
  Allocator allocator(books);
  std::vector<Allocator::Block> blocks;
  for (const std::size_t bytes : {1U, 3U, 63U, 64U, 65U, 1000U, 4097U, 1U << 20U}) {
    blocks.push_back(allocator.allocate(bytes, kActivation));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().data) % Allocator::kAlignment, 0U);
    EXPECT_GE(blocks.back().capacity, bytes);
    std::memset(blocks.back().data, 0x5A, bytes);
  }
  for (const auto& block : blocks) allocator.release(block);
}

TEST(AllocatorTest, ZeroBytesAreANullBlockThatCostsNothing) {
  MemoryTracker books;
  Allocator allocator(books);
  const auto block = allocator.allocate(0, kActivation);
  EXPECT_EQ(block.data, nullptr);
  allocator.release(block);
  EXPECT_EQ(books.peak_total(), 0U);
  EXPECT_EQ(allocator.cached_bytes(), 0U);
}

TEST(AllocatorTest, ChargesTheRequestRoundedUpTo64) {
  MemoryTracker books;
  Allocator allocator(books);
  const auto a = allocator.allocate(1, kParameter);
  const auto b = allocator.allocate(65, kActivation);
  EXPECT_EQ(books.current(kParameter), 64U);
  EXPECT_EQ(books.current(kActivation), 128U);
  allocator.release(b);
  EXPECT_EQ(books.current(kActivation), 0U);
  EXPECT_EQ(books.peak(kActivation), 128U);
  EXPECT_EQ(books.current_total(), 64U);
  EXPECT_EQ(books.peak_total(), 192U);
  allocator.release(a);
  EXPECT_EQ(books.current_total(), 0U);
}

TEST(AllocatorTest, ReusesAFreedBlockAtOnce) {
  MemoryTracker books;
  Allocator allocator(books);
  const auto first = allocator.allocate(1000, kActivation);
  allocator.release(first);
  EXPECT_EQ(allocator.cached_bytes(), 1024U);
  const auto second = allocator.allocate(1024, kParameter);
  EXPECT_EQ(second.data, first.data);
  EXPECT_EQ(second.category, kParameter);
  EXPECT_EQ(allocator.cached_bytes(), 0U);
  allocator.release(second);
}

TEST(AllocatorTest, ReusesABlockOnlyWhereItWastesAtMostAnEighth) {
  MemoryTracker books;
  Allocator allocator(books);
  const auto block = allocator.allocate(1024, kActivation);
  allocator.release(block);
  const auto fits_badly = allocator.allocate(832, kActivation);  // would waste 192 of 1024
  EXPECT_NE(fits_badly.data, block.data);
  const auto fits = allocator.allocate(896, kActivation);  // wastes 128 of 1024
  EXPECT_EQ(fits.data, block.data);
  EXPECT_EQ(fits.capacity, 1024U);
  EXPECT_EQ(fits.charged, 896U);
  EXPECT_EQ(books.current_total(), 832U + 896U);
  allocator.release(fits);
  EXPECT_EQ(allocator.cached_bytes(), 1024U);
  allocator.release(fits_badly);
  EXPECT_EQ(books.current_total(), 0U);
}

TEST(AllocatorTest, TakesTheSmallestBlockThatFits) {
  MemoryTracker books;
  Allocator allocator(books);
  const auto large = allocator.allocate(1088, kActivation);
  const auto small = allocator.allocate(1024, kActivation);
  allocator.release(large);
  allocator.release(small);
  const auto taken = allocator.allocate(1000, kActivation);
  EXPECT_EQ(taken.data, small.data);
  allocator.release(taken);
}

/// The same program of allocations and releases; says which earlier block each request reused.
std::vector<int> reuse_pattern() {
  MemoryTracker books;
  Allocator allocator(books);
  std::map<void*, int> names;
  std::vector<Allocator::Block> held;
  std::vector<int> pattern;
  std::uint32_t state = 1;
  for (int i = 0; i < 500; ++i) {
    state = state * 1664525U + 1013904223U;
    if ((state >> 16) % 2U == 0U || held.empty()) {
      held.push_back(allocator.allocate(64U + (state >> 20) % 2000U, kActivation));
      pattern.push_back(names.try_emplace(held.back().data, i).first->second);
    } else {
      const std::size_t victim = (state >> 8) % held.size();
      allocator.release(held[victim]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
    }
  }
  for (const auto& block : held) allocator.release(block);
  return pattern;
}

TEST(AllocatorTest, ReuseFollowsProgramOrderAlone) { EXPECT_EQ(reuse_pattern(), reuse_pattern()); }

TEST(AllocatorTest, TrimEmptiesTheCache) {
  MemoryTracker books;
  Allocator allocator(books);
  const auto kept = allocator.allocate(128, kActivation);
  allocator.release(allocator.allocate(4096, kActivation));
  EXPECT_EQ(allocator.cached_bytes(), 4096U);
  allocator.trim();
  EXPECT_EQ(allocator.cached_bytes(), 0U);
  EXPECT_EQ(books.current_total(), 128U);
  allocator.release(kept);
}

std::string out_of_memory_message(Allocator& allocator, std::size_t bytes) {
  try {
    allocator.release(allocator.allocate(bytes, kActivation));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    return error.message();
  }
  return "no exception";
}

TEST(AllocatorTest, OutOfMemorySaysWhoAskedWhatHoldsAndWhatHelps) {
  MemoryTracker books;
  Allocator allocator(books, 3 << 20);
  const auto held = allocator.allocate(2 << 20, kParameter);
  const std::string message = out_of_memory_message(allocator, (1 << 20) + 1);
  for (const char* part :
       {"activation asked for 1.0 MiB", "2.0 MiB in use", "the limit is 3.0 MiB",
        "parameter 2.0 MiB (peak 2.0 MiB)", "Smaller micro-batches", "recomputation"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in:\n" << message;
  }
  EXPECT_EQ(books.current_total(), std::size_t{2} << 20);
  allocator.release(held);
}

TEST(AllocatorTest, LimitIsReachedExactlyAndFailureChargesNothing) {
  MemoryTracker books;
  Allocator allocator(books, 1024);
  const auto all = allocator.allocate(1024, kActivation);
  EXPECT_THROW(allocator.allocate(1, kActivation), Error);
  EXPECT_EQ(books.peak_total(), 1024U);
  allocator.release(all);
  const auto again = allocator.allocate(1, kActivation);
  allocator.release(again);
}

TEST(AllocatorTest, CacheStaysWithinAnEighthOfThePeak) {
  MemoryTracker books;
  Allocator allocator(books);
  allocator.release(allocator.allocate(800 << 20, kActivation));
  const auto fits = allocator.allocate(100 << 20, kActivation);  // 800 + 100: to the last byte
  EXPECT_EQ(allocator.cached_bytes(), std::size_t{800} << 20);
  const auto more = allocator.allocate(64, kActivation);  // one line too many
  EXPECT_EQ(allocator.cached_bytes(), 0U);
  allocator.release(fits);
  allocator.release(more);
}

TEST(AllocatorTest, CacheGivesWayToTheLimit) {
  MemoryTracker books;
  Allocator allocator(books, 1 << 20);
  allocator.release(allocator.allocate(1000 << 10, kActivation));
  const auto fits = allocator.allocate(24 << 10, kActivation);  // 1000 + 24: to the last byte
  EXPECT_EQ(allocator.cached_bytes(), std::size_t{1000} << 10);
  const auto more = allocator.allocate(64, kActivation);
  EXPECT_EQ(allocator.cached_bytes(), 0U);
  allocator.release(fits);
  allocator.release(more);
}

TEST(AllocatorTest, RequestsNearTheAddressSpaceDoNotWrapAround) {
  MemoryTracker books;
  Allocator allocator(books);
  Allocator limited(books, 1 << 20);
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_NE(out_of_memory_message(allocator, most).find("out of memory"), std::string::npos);
  EXPECT_NE(out_of_memory_message(limited, most).find("the limit is"), std::string::npos);
  const auto held = limited.allocate(128, kActivation);
  EXPECT_NE(out_of_memory_message(limited, most - 64).find("the limit is"), std::string::npos);
  limited.release(held);
}

TEST(AllocatorTest, ThreadsShareItWithoutOverlapOrLoss) {
  MemoryTracker books;
  Allocator allocator(books);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&allocator, t] {
      std::vector<Allocator::Block> held;
      for (std::size_t i = 0; i < 300; ++i) {
        const auto block = allocator.allocate(64 + 64 * (i % 7), kActivation);
        std::memset(block.data, t, block.charged);
        held.push_back(block);
        if (held.size() > 4) {
          const auto* bytes = static_cast<const unsigned char*>(held.front().data);
          for (std::size_t b = 0; b < held.front().charged; ++b) ASSERT_EQ(bytes[b], t);
          allocator.release(held.front());
          held.erase(held.begin());
        }
      }
      for (const auto& block : held) allocator.release(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(books.current_total(), 0U);
}

TEST(AllocatorTest, ThreadsTogetherStayBelowTheLimit) {
  constexpr std::size_t kLimit = 64 * 100;
  MemoryTracker books;
  Allocator allocator(books, kLimit);
  std::vector<std::vector<Allocator::Block>> held(4);
  std::vector<std::thread> threads;
  for (auto& mine : held) {
    threads.emplace_back([&allocator, &mine] {
      try {
        while (true) mine.push_back(allocator.allocate(64, kActivation));
      } catch (const Error&) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(books.current_total(), kLimit);
  EXPECT_EQ(books.peak_total(), kLimit);
  for (const auto& mine : held) {
    for (const auto& block : mine) allocator.release(block);
  }
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/memory.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tessera {
namespace {

TEST(MemoryTrackerTest, KeepsCurrentAndPeakPerCategory) {
  MemoryTracker books;
  books.add(MemoryCategory::kParameter, 100);
  books.add(MemoryCategory::kActivation, 50);
  books.remove(MemoryCategory::kActivation, 50);
  books.add(MemoryCategory::kActivation, 30);
  EXPECT_EQ(books.current(MemoryCategory::kParameter), 100U);
  EXPECT_EQ(books.current(MemoryCategory::kActivation), 30U);
  EXPECT_EQ(books.peak(MemoryCategory::kActivation), 50U);
  EXPECT_EQ(books.current(MemoryCategory::kGradient), 0U);
  EXPECT_EQ(books.current_total(), 130U);
}

TEST(MemoryTrackerTest, PeakOfTheTotalIsNotTheSumOfPeaks) {
  MemoryTracker books;
  books.add(MemoryCategory::kActivation, 80);
  books.remove(MemoryCategory::kActivation, 80);
  books.add(MemoryCategory::kGradient, 60);
  EXPECT_EQ(books.peak_total(), 80U);
}

TEST(MemoryTrackerTest, ResetPeakGoesDownToCurrent) {
  MemoryTracker books;
  books.add(MemoryCategory::kWorkspace, 80);
  books.remove(MemoryCategory::kWorkspace, 70);
  books.reset_peak();
  EXPECT_EQ(books.peak(MemoryCategory::kWorkspace), 10U);
  EXPECT_EQ(books.peak_total(), 10U);
}

TEST(MemoryTrackerTest, ReportHasOneLinePerCategoryInUse) {
  MemoryTracker books;
  EXPECT_EQ(books.report(), "");
  books.add(MemoryCategory::kActivation, 40 << 20);
  books.remove(MemoryCategory::kActivation, 28 << 20);
  books.add(MemoryCategory::kParameter, 3 << 20);
  EXPECT_EQ(books.report(),
            "parameter 3.0 MiB (peak 3.0 MiB)\nactivation 12.0 MiB (peak 40.0 MiB)");
}

TEST(MemoryTrackerTest, LosesNothingBetweenThreads) {
  MemoryTracker books;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&books] {
      for (int i = 0; i < 1000; ++i) {
        books.add(MemoryCategory::kGradient, 3);
        books.remove(MemoryCategory::kGradient, 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(books.current(MemoryCategory::kGradient), 4000U);
  EXPECT_EQ(books.current_total(), 4000U);
  EXPECT_GE(books.peak_total(), 4000U);
  EXPECT_LE(books.peak_total(), 4008U);  // at most two bytes of each thread in flight
}

TEST(MemoryCategoryTest, EveryCategoryHasItsOwnName) {
  std::set<std::string> names;
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    names.insert(to_string(static_cast<MemoryCategory>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kMemoryCategoryCount));
  EXPECT_EQ(names.count("kv-cache"), 1U);
}

TEST(FormatBytesTest, UsesBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(std::size_t{12} << 20), "12.0 MiB");
  EXPECT_EQ(format_bytes(std::size_t{3} << 39), "1.5 TiB");
}

}  // namespace
}  // namespace tessera

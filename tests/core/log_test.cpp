// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/log.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace tessera {
namespace {

template <typename F>
std::string standard_error_of(F&& f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, GoesToStandardErrorAndNotToStandardOutput) {
  testing::internal::CaptureStdout();
  const std::string text = standard_error_of([] {
    Logger log(0, 1, LogLevel::kInfo);
    log.info("step {} loss {:.2f}", 3, 1.5);
  });
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_NE(text.find("step 3 loss 1.50\n"), std::string::npos) << text;
}

TEST(LogTest, NamesTheRankWhenThereAreSeveral) {
  const std::string text = standard_error_of([] { Logger(2, 4, LogLevel::kInfo).warn("slow"); });
  EXPECT_NE(text.find("[rank 2/4] slow\n"), std::string::npos) << text;
}

TEST(LogTest, NamesNoRankWhenThereIsOne) {
  const std::string text = standard_error_of([] { Logger(0, 1, LogLevel::kInfo).warn("slow"); });
  EXPECT_EQ(text.find("rank"), std::string::npos) << text;
}

TEST(LogTest, DropsLinesBelowItsLevel) {
  const std::string text = standard_error_of([] {
    Logger log(0, 1, LogLevel::kWarn);
    log.debug("one");
    log.info("two");
    log.warn("three");
    log.error("four");
    log.set_level(LogLevel::kDebug);
    log.debug("five");
  });
  EXPECT_EQ(text.find("one"), std::string::npos) << text;
  EXPECT_EQ(text.find("two"), std::string::npos) << text;
  for (const char* line : {"three\n", "four\n", "five\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << text;
  }
}

TEST(LogTest, TakesMessagesWithBracesAsTheyAre) {
  const std::string text =
      standard_error_of([] { Logger(0, 2, LogLevel::kInfo).write(LogLevel::kInfo, "{} {x}"); });
  EXPECT_NE(text.find("[rank 0/2] {} {x}\n"), std::string::npos) << text;
}

TEST(LogTest, LinesOfRankThreadsStayWhole) {
  constexpr int kRanks = 4;
  constexpr int kLines = 50;
  const std::string body(200, 'x');
  const std::string text = standard_error_of([&] {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        Logger log(rank, kRanks, LogLevel::kInfo);
        for (int i = 0; i < kLines; ++i) log.info("{}", body);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kRanks * kLines);
  int whole = 0;
  const std::string wanted = "] " + body + "\n";
  for (std::size_t at = text.find(wanted); at != std::string::npos;
       at = text.find(wanted, at + 1)) {
    ++whole;
  }
  EXPECT_EQ(whole, kRanks * kLines);
}

}  // namespace
}  // namespace tessera

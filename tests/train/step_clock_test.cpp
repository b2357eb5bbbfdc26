// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/step_clock.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

namespace tessera::train {
namespace {

void wait_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(StepClockTest, PartsAndOtherAddUpToTheStep) {
  StepClock clock;
  clock.start();
  wait_ms(4);
  for (int i = 0; i < 2; ++i) {
    clock.enter(LedgerPart::kData);
    wait_ms(3);
    clock.enter(LedgerPart::kCompute);
    wait_ms(5);
  }
  clock.enter(LedgerPart::kCommDp);
  wait_ms(2);
  clock.stop();
  wait_ms(20);
  const auto ledger = nlohmann::json::parse(clock.ledger().str());
  double sum = 0.0;
  for (const auto& [name, ms] : ledger.items()) sum += ms.get<double>();
  EXPECT_NEAR(sum, clock.step_ms(), 1e-9);
  EXPECT_GE(ledger["data"].get<double>(), 6.0);
  EXPECT_GE(ledger["compute"].get<double>(), 10.0);
  EXPECT_GE(ledger["comm_dp"].get<double>(), 2.0);
  EXPECT_GE(ledger["other"].get<double>(), 4.0);
}

TEST(StepClockTest, LedgerHasEveryPartOfTheFormat) {
  StepClock clock;
  clock.start();
  clock.stop();
  const auto ledger = nlohmann::json::parse(clock.ledger().str());
  for (const char* part : {"compute", "comm_dp", "comm_tp", "comm_pp", "comm_cp", "comm_ep",
                           "bubble", "data", "checkpoint", "other"}) {
    EXPECT_TRUE(ledger.contains(part)) << part;
  }
  EXPECT_EQ(ledger.size(), 10U);
}

TEST(StepClockTest, StartForgetsTheStepBefore) {
  StepClock clock;
  clock.start();
  clock.enter(LedgerPart::kData);
  wait_ms(20);
  clock.stop();
  clock.start();
  clock.stop();
  EXPECT_LT(nlohmann::json::parse(clock.ledger().str())["data"].get<double>(), 10.0);
}

}  // namespace
}  // namespace tessera::train

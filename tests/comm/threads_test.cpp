// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "conformance.hpp"
#include "tessera/comm/backends.hpp"

namespace tessera {
namespace {

using comm::Communicator;

class RanksThreads : public ::testing::TestWithParam<int> {};

TEST_P(RanksThreads, Conforms) {
  comm::run_threads(
      GetParam(), [](std::shared_ptr<Communicator> world) { testing::expect_conformance(*world); },
      std::chrono::seconds(60));
}

INSTANTIATE_TEST_SUITE_P(Sizes, RanksThreads, ::testing::Values(1, 2, 3, 4, 5));

TEST(SelfTest, Conforms) { testing::expect_conformance(*comm::make_world("self")); }

TEST(BackendTest, AnUnknownNameIsNamedWithTheKnownOnes) {
  try {
    comm::make_world("carrier-pigeon");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("carrier-pigeon"), std::string::npos);
    EXPECT_NE(error.message().find("self"), std::string::npos);
  }
}

TEST(RanksFailure, ARankThatThrowsEndsTheOthersWaits) {
  std::atomic<int> peers_failed{0};
  const auto begin = std::chrono::steady_clock::now();
  try {
    comm::run_threads(
        3,
        [&](std::shared_ptr<Communicator> world) {
          if (world->rank() == 1) throw Error(ErrorCode::kNonFinite, "the cause");
          const auto context = Context::create();
          const Tensor x = Tensor::zeros(*context, {10}, DType::kF32);
          try {
            world->all_reduce(x).wait();
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
            EXPECT_NE(error.message().find("the cause"), std::string::npos) << error.message();
            ++peers_failed;
            throw;
          }
        },
        std::chrono::seconds(60));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNonFinite);
    EXPECT_EQ(error.rank(), 1);
  }
  EXPECT_EQ(peers_failed, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(RanksFailure, AWaitPastItsDeadlineNamesOperationAndMissingRanks) {
  try {
    comm::run_threads(
        2,
        [](std::shared_ptr<Communicator> world) {
          if (world->rank() == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(800));
            return;
          }
          world->set_timeout(std::chrono::milliseconds(100));
          const auto context = Context::create();
          world->all_reduce(Tensor::zeros(*context, {4}, DType::kF32)).wait();
        },
        std::chrono::seconds(60));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(error.message().find("all_reduce"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("not seen: rank 1"), std::string::npos) << error.message();
  }
}

TEST(RanksFailure, AMessageOfAnotherSizeIsAnErrorOfTheReceiver) {
  try {
    comm::run_threads(
        2,
        [](std::shared_ptr<Communicator> world) {
          const auto context = Context::create();
          if (world->rank() == 0) {
            world->isend(Tensor::zeros(*context, {3}, DType::kF32), 1, 0).wait();
          } else {
            world->irecv(Tensor::zeros(*context, {4}, DType::kF32), 0, 0).wait();
          }
        },
        std::chrono::seconds(10));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_NE(error.message().find("12 bytes"), std::string::npos) << error.message();
  }
}

TEST(RanksFailure, APoisonedCommunicatorStaysClosed) {
  std::atomic<bool> peer_is_ready{false};
  comm::run_threads(
      2,
      [&peer_is_ready](std::shared_ptr<Communicator> world) {
        const auto part = world->split(0, world->rank());
        if (world->rank() == 1) peer_is_ready = true;
        if (world->rank() == 0) {
          while (!peer_is_ready) std::this_thread::yield();
          EXPECT_TRUE(world->poison("first"));
          EXPECT_FALSE(world->poison("second"));
        }
        while (true) {
          try {
            part->barrier();
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
            EXPECT_NE(error.message().find("first"), std::string::npos);
            break;
          }
          std::this_thread::yield();
        }
      },
      std::chrono::seconds(10));
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// Runs under mpirun with several numbers of ranks.
#include "tessera/comm/mpi.hpp"

#include <gtest/gtest.h>

#include "conformance.hpp"
#include "tessera/comm/backends.hpp"

namespace tessera {
namespace {

/// The world of all tests of this process, closed before the program ends.
class World : public ::testing::Environment {
 public:
  static std::shared_ptr<comm::Communicator>& get() {
    static std::shared_ptr<comm::Communicator> world;
    if (world == nullptr) world = comm::make_world("mpi");
    return world;
  }
  void TearDown() override {
    if (is_used_) get().reset();
  }
  static bool is_used_;
};
bool World::is_used_ = false;

std::shared_ptr<comm::Communicator> world() {
  static const auto* environment = ::testing::AddGlobalTestEnvironment(new World);
  static_cast<void>(environment);
  World::is_used_ = true;
  return World::get();
}

TEST(MpiTest, ConformsInSharedMemory) { testing::expect_conformance(*world()); }

TEST(MpiTest, ConformsOverMessages) {
  const auto first = world();
  const auto messages = comm::from_mpi(MPI_COMM_WORLD, comm::SharedMemory::kAvoid);
  testing::expect_conformance(*messages);
}

TEST(MpiTest, BothWaysGiveTheSameBits) {
  const auto shared = world();
  const auto messages = comm::from_mpi(MPI_COMM_WORLD, comm::SharedMemory::kAvoid);
  const auto context = Context::create();
  const std::int64_t count = 400003;
  const Tensor a = Tensor::empty(*context, {count}, DType::kF32);
  const Tensor b = Tensor::empty(*context, {count}, DType::kF32);
  const Tensor c = shared->allocate(*context, {count}, DType::kF32);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(random_normal(
        RandomKey{static_cast<std::uint64_t>(shared->rank())}, static_cast<std::uint64_t>(i)));
    a.data<float>()[i] = value;
    b.data<float>()[i] = value;
    c.data<float>()[i] = value;
  }
  shared->all_reduce(a).wait();
  messages->all_reduce(b).wait();
  shared->all_reduce(c).wait();
  EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>());
  EXPECT_EQ(a.to_vector<float>(), c.to_vector<float>());
}

/// The error of a rank's body, in a world of its own, so that its poison stays there.
template <typename F>
ErrorCode failure(comm::SharedMemory shared, std::string& message, const F& body) {
  const auto first = world();
  const auto broken = comm::from_mpi(MPI_COMM_WORLD, shared);
  ErrorCode code = ErrorCode::kInternal;
  try {
    body(broken);
    message = "no error";
  } catch (const Error& error) {
    code = error.code();
    message = error.message();
  }
  first->barrier().wait();
  return code;
}

TEST(MpiFailureTest, AMessageOfAnotherSizeIsAnErrorOfTheReceiver) {
  const auto first = world();
  if (first->size() < 2) GTEST_SKIP() << "needs two ranks";
  for (const std::int64_t sent : {3, 5}) {
    std::string message;
    const ErrorCode code = failure(comm::SharedMemory::kUse, message, [&](const auto& broken) {
      const auto context = Context::create();
      if (broken->rank() == 0) broken->isend(Tensor::zeros(*context, {sent}, DType::kF32), 1, 0);
      if (broken->rank() == 1) {
        broken->irecv(Tensor::zeros(*context, {4}, DType::kF32), 0, 0).wait();
      }
      while (true) broken->barrier().wait();  // until the others hear of it
    });
    if (first->rank() == 1) {
      EXPECT_EQ(code, ErrorCode::kInvalidArgument);
    } else {
      EXPECT_EQ(code, ErrorCode::kPeerFailed);
    }
    EXPECT_NE(message.find("tensor of 16 bytes"), std::string::npos) << message;
  }
}

TEST(MpiFailureTest, AWaitPastItsDeadlineNamesOperationLabelAndMissingRanks) {
  const auto first = world();
  if (first->size() < 2) GTEST_SKIP() << "needs two ranks";
  for (const auto shared : {comm::SharedMemory::kUse, comm::SharedMemory::kAvoid}) {
    std::string message;
    const ErrorCode code = failure(shared, message, [](const auto& broken) {
      broken->set_timeout(std::chrono::milliseconds(200));
      broken->set_label("dp");
      const auto context = Context::create();
      if (broken->rank() == 1) throw Error(ErrorCode::kNonFinite, "does not come");
      broken->all_reduce(Tensor::zeros(*context, {40}, DType::kF32)).wait();
    });
    if (first->rank() == 1) {
      EXPECT_EQ(code, ErrorCode::kNonFinite);
      continue;
    }
    // With three ranks or more, another one may have been the first to give up.
    EXPECT_TRUE(code == ErrorCode::kTimeout || code == ErrorCode::kPeerFailed) << message;
    EXPECT_NE(message.find("all_reduce on \"dp\""), std::string::npos) << message;
    EXPECT_NE(message.find("was not finished after 0.2 s"), std::string::npos) << message;
    EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace tessera

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

}  // namespace
}  // namespace tessera

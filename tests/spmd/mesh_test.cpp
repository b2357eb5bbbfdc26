// SPDX-License-Identifier: Apache-2.0
#include "tessera/spmd/mesh.hpp"

#include <gtest/gtest.h>

#include "tessera/comm/backends.hpp"
#include "tessera/core/error.hpp"
#include "tessera/spmd/placement.hpp"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kTimeout{30000};

std::shared_ptr<Context> make_context(const comm::Communicator& world) {
  ContextOptions options;
  options.rank = world.rank();
  options.world_size = world.size();
  options.seed = 3;
  return Context::create(options);
}

TEST(MeshTest, TheLastAxisIsFastest) {
  comm::run_threads(
      6,
      [](std::shared_ptr<comm::Communicator> world) {
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"dp", 3}, {"tp", 2}};
        const spmd::Mesh mesh(*context, world, axes);
        EXPECT_EQ(mesh.axes()->axes[0].coordinate, world->rank() / 2);
        EXPECT_EQ(mesh.axes()->axes[1].coordinate, world->rank() % 2);
        EXPECT_EQ(mesh.communicator("dp")->size(), 3);
        EXPECT_EQ(mesh.communicator("dp")->rank(), world->rank() / 2);
        EXPECT_EQ(mesh.communicator("tp")->rank(), world->rank() % 2);
      },
      kTimeout);
}

TEST(MeshTest, RejectsAProductThatIsNotTheRanks) {
  comm::run_threads(
      2,
      [](std::shared_ptr<comm::Communicator> world) {
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"dp", 3}};
        try {
          const spmd::Mesh mesh(*context, world, axes);
          ADD_FAILURE();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kConfig);
          EXPECT_NE(error.message().find("dp 3 needs 3 ranks, but 2"), std::string::npos)
              << error.message();
        }
      },
      kTimeout);
}

TEST(MeshTest, UnknownGroupsAreNamedWithTheKnownOnes) {
  comm::run_threads(
      1,
      [](std::shared_ptr<comm::Communicator> world) {
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"dp", 1}};
        const spmd::Mesh mesh(*context, world, axes);
        try {
          mesh.group("tq");
          ADD_FAILURE();
        } catch (const Error& error) {
          EXPECT_NE(error.message().find("dp"), std::string::npos);
        }
      },
      kTimeout);
}

TEST(PlacementTest, ShardedInitialisationIsASliceOfTheWhole) {
  comm::run_threads(
      3,
      [](std::shared_ptr<comm::Communicator> world) {
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"tp", 3}};
        const spmd::Mesh mesh(*context, world, axes);
        const RandomKey key = context->random_key().child("some.weight");
        spmd::Placement whole{{7, 5}, mesh.invariant(), {0}};
        const Tensor all = Tensor::zeros(*context, {7, 5}, DType::kF64);
        spmd::fill_normal(all, whole, key, 0.5);
        for (int dim = 0; dim < 2; ++dim) {
          spmd::Placement cut{{7, 5}, mesh.type("tp", AxisType::shard(dim)), {0}};
          const Tensor piece = Tensor::zeros(*context, cut.local_shape(), DType::kF64);
          spmd::fill_normal(piece, cut, key, 0.5);
          const ChunkRange own = cut.range(dim);
          EXPECT_EQ(piece.to_vector<double>(),
                    all.narrow(dim, own.first, own.size).to_vector<double>());
        }
        EXPECT_EQ(whole.is_owner(), world->rank() == 0);
      },
      kTimeout);
}

TEST(PlacementTest, TwoAxesOnOneDimSplitOneInsideTheOther) {
  comm::run_threads(
      4,
      [](std::shared_ptr<comm::Communicator> world) {
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"a", 2}, {"b", 2}};
        const spmd::AxisGroup groups[] = {{"ab", {"a", "b"}}, {"ba", {"b", "a"}}};
        const spmd::Mesh mesh(*context, world, axes, groups);
        const int rank = world->rank();
        const spmd::Placement ab{{8}, mesh.type("ab", AxisType::shard(0)), {0}};
        EXPECT_EQ(ab.range(0), (ChunkRange{rank * 2, 2}));
        const spmd::Placement ba{{8}, mesh.type("ba", AxisType::shard(0)), {0}};
        EXPECT_EQ(ba.range(0), (ChunkRange{(rank % 2) * 4 + (rank / 2) * 2, 2}));
      },
      kTimeout);
}

}  // namespace
}  // namespace tessera

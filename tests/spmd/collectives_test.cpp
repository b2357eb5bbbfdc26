// SPDX-License-Identifier: Apache-2.0
// Every conversion is the identity on the logical tensor, forward and backward: distribute a whole
// tensor by the first type, convert, and put the pieces together by the second one.
#include "tessera/spmd/collectives.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/autograd/backward.hpp"
#include "tessera/autograd/scale.hpp"
#include "tessera/comm/backends.hpp"
#include "tessera/core/context.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/random.hpp"

namespace tessera {
namespace {

using autograd::Variable;

constexpr std::chrono::milliseconds kTimeout{30000};
const Shape kGlobal{5, 7};

std::shared_ptr<Context> make_context(const comm::Communicator& world) {
  ContextOptions options;
  options.rank = world.rank();
  options.world_size = world.size();
  return Context::create(options);
}

double value_at(std::uint64_t key, std::int64_t i) {
  return random_normal(RandomKey{key}, static_cast<std::uint64_t>(i));
}

/// The type with the size of the whole where it splits a dim.
AxisType sized(AxisType type) {
  return type.kind == AxisKind::kShard ? type.of(kGlobal[type.dim]) : type;
}

/// Part of rank `rank` of a whole tensor under a type on one axis of `size` ranks.
std::vector<double> part(std::uint64_t key, AxisType type, int size, int rank) {
  std::vector<double> out;
  for (std::int64_t r = 0; r < kGlobal[0]; ++r) {
    for (std::int64_t c = 0; c < kGlobal[1]; ++c) {
      const std::int64_t i = r * kGlobal[1] + c;
      const double whole = value_at(key, i);
      if (type.kind == AxisKind::kShard) {
        const ChunkRange own = balanced_chunk(kGlobal[type.dim], type.unit, size, rank);
        const std::int64_t at = type.dim == 0 ? r : c;
        if (at >= own.first && at < own.first + own.size) out.push_back(whole);
      } else if (type.kind == AxisKind::kPartial) {
        double others = 0.0;
        for (int other = 1; other < size; ++other) {
          others += value_at(key + 100 + static_cast<std::uint64_t>(other), i);
        }
        out.push_back(rank == 0 ? whole - others
                                : value_at(key + 100 + static_cast<std::uint64_t>(rank), i));
      } else {
        out.push_back(whole);
      }
    }
  }
  return out;
}

Shape part_shape(AxisType type, int size, int rank) {
  Shape shape = kGlobal;
  if (type.kind == AxisKind::kShard) {
    shape[type.dim] = balanced_chunk(kGlobal[type.dim], type.unit, size, rank).size;
  }
  return shape;
}

/// Checks that `parts` (one per rank) are the whole tensor of `key` under `type`.
void expect_whole(const std::vector<std::vector<double>>& parts, std::uint64_t key, AxisType type,
                  const std::string& what) {
  const int size = static_cast<int>(parts.size());
  if (type.kind == AxisKind::kPartial) {
    for (std::int64_t i = 0; i < kGlobal.numel(); ++i) {
      double sum = 0.0;
      for (const auto& p : parts) sum += p.at(static_cast<std::size_t>(i));
      EXPECT_NEAR(sum, value_at(key, i), 1e-12) << what;
    }
    return;
  }
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<double> expected = part(key, type, size, rank);
    const auto& got = parts[static_cast<std::size_t>(rank)];
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << what;
  }
}

void check_conversion(int ranks, AxisType from, AxisType to) {
  const std::string what = to_string(from) + " -> " + to_string(to);
  std::vector<std::vector<double>> outputs(static_cast<std::size_t>(ranks));
  std::vector<std::vector<double>> gradients(static_cast<std::size_t>(ranks));
  comm::run_threads(
      ranks,
      [&](std::shared_ptr<comm::Communicator> world) {
        const int rank = world->rank();
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"x", ranks}};
        const spmd::Mesh mesh(*context, world, axes);
        const Variable x(
            Tensor::from(*context, part_shape(from, ranks, rank), part(1, from, ranks, rank)),
            mesh.type("x", sized(from)), autograd::TakesGradient::kYes);
        const Variable y = spmd::convert(autograd::scale(x, 1.0), mesh, "x", to);
        EXPECT_EQ(y.type(), mesh.type("x", sized(to)));
        outputs[static_cast<std::size_t>(rank)] = y.value().to_vector<double>();
        autograd::backward(y, Tensor::from(*context, part_shape(to.dual(), ranks, rank),
                                           part(2, to.dual(), ranks, rank)));
        EXPECT_EQ(x.grad_type(), mesh.type("x", sized(from.dual())));
        gradients[static_cast<std::size_t>(rank)] = x.grad().to_vector<double>();
      },
      kTimeout);
  expect_whole(outputs, 1, to, what + " forward");
  expect_whole(gradients, 2, from.dual(), what + " backward");
}

class Conversions : public ::testing::TestWithParam<int> {};

TEST_P(Conversions, KeepTheLogicalTensorAndItsGradient) {
  const AxisType r = AxisType::replicate();
  const AxisType i = AxisType::invariant();
  const AxisType p = AxisType::partial();
  const AxisType s0 = AxisType::shard(0);
  const AxisType s1 = AxisType::shard(1);
  const AxisType s1u = AxisType::shard(1, 2);
  const std::pair<AxisType, AxisType> all[] = {
      {i, r},  {r, i},   {s0, r},  {s1, r},  {s1u, r},  {s0, i},   {s1, i},  {s1u, i},
      {p, r},  {p, i},   {p, s0},  {p, s1},  {p, s1u},  {i, s0},   {i, s1u}, {r, s0},
      {r, s1}, {r, s1u}, {s0, s1}, {s1, s0}, {s0, s1u}, {s1u, s0}, {r, p}};
  for (const auto& [from, to] : all) check_conversion(GetParam(), from, to);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Conversions, ::testing::Values(1, 2, 3, 4));

TEST(ConvertTest, RejectsWhatIsNotInTheTable) {
  comm::run_threads(
      2,
      [](std::shared_ptr<comm::Communicator> world) {
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"x", 2}};
        const spmd::Mesh mesh(*context, world, axes);
        const std::pair<AxisType, AxisType> bad[] = {
            {AxisType::invariant(), AxisType::partial()},
            {AxisType::shard(0), AxisType::partial()},
            {AxisType::shard(0), AxisType::varying()},
            {AxisType::varying(), AxisType::replicate()},
            {AxisType::partial(), AxisType::varying()},
        };
        for (const auto& [from, to] : bad) {
          const Variable x(Tensor::zeros(*context, {4, 4}, DType::kF64), mesh.type("x", from));
          try {
            spmd::convert(x, mesh, "x", to);
            ADD_FAILURE() << to_string(from) << " -> " << to_string(to) << " was accepted";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kShardingType);
          }
        }
      },
      kTimeout);
}

TEST(ConvertTest, GathersADimThatTwoAxesSplit) {
  comm::run_threads(
      4,
      [](std::shared_ptr<comm::Communicator> world) {
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"outer", 2}, {"inner", 2}};
        const spmd::AxisGroup groups[] = {{"both", {"outer", "inner"}}};
        const spmd::Mesh mesh(*context, world, axes, groups);
        const std::vector<double> own{static_cast<double>(world->rank())};
        const Variable x(Tensor::from(*context, {1}, own), mesh.type("both", AxisType::shard(0)),
                         autograd::TakesGradient::kYes);
        const Variable y = spmd::convert(x, mesh, "both", AxisType::replicate());
        EXPECT_EQ(y.value().to_vector<double>(), (std::vector<double>{0, 1, 2, 3}));
        EXPECT_EQ(y.type(), mesh.type("both", AxisType::replicate()));
      },
      kTimeout);
}

/// Six rows over 2 x 2 ranks: as successive splits 2 1 | 2 1, not the 2 2 1 1 of one split.
TEST(ConvertTest, UnevenSplitsOverTwoAxesAreSuccessive) {
  comm::run_threads(
      4,
      [](std::shared_ptr<comm::Communicator> world) {
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"outer", 2}, {"inner", 2}};
        const spmd::AxisGroup groups[] = {{"both", {"outer", "inner"}}};
        const spmd::Mesh mesh(*context, world, axes, groups);
        const std::vector<double> whole{0, 1, 2, 3, 4, 5};
        const std::vector<std::vector<double>> pieces{{0, 1}, {2}, {3, 4}, {5}};
        const auto& own = pieces[static_cast<std::size_t>(world->rank())];
        const Variable x(Tensor::from(*context, {6}, whole),
                         mesh.type("both", AxisType::replicate()), autograd::TakesGradient::kYes);

        const Variable at_once = spmd::convert(x, mesh, "both", AxisType::shard(0));
        EXPECT_EQ(at_once.value().to_vector<double>(), own);
        EXPECT_EQ(at_once.type(), mesh.type("both", AxisType::shard(0).of(6)));

        const Variable outer = spmd::convert(x, mesh, "outer", AxisType::shard(0));
        const Variable nested = spmd::convert(outer, mesh, "inner", AxisType::shard(0));
        EXPECT_EQ(nested.value().to_vector<double>(), own);
        EXPECT_EQ(nested.type(), at_once.type());

        const Variable back = spmd::convert(nested, mesh, "inner", AxisType::replicate());
        EXPECT_EQ(back.value().to_vector<double>(), outer.value().to_vector<double>());
        EXPECT_EQ(back.type(), outer.type());
        EXPECT_EQ(
            spmd::convert(nested, mesh, "both", AxisType::replicate()).value().to_vector<double>(),
            whole);
        try {
          spmd::convert(nested, mesh, "outer", AxisType::replicate());
          ADD_FAILURE() << "the outer split was undone under the inner one";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kShardingType);
          EXPECT_NE(error.message().find("innermost"), std::string::npos) << error.message();
        }
        autograd::backward(at_once,
                           Tensor::from(*context, {static_cast<std::int64_t>(own.size())}, own));
        std::vector<double> padded(6, 0.0);
        for (const double v : own) padded[static_cast<std::size_t>(v)] = v;
        EXPECT_EQ(x.grad().to_vector<double>(), padded);
      },
      kTimeout);
}

TEST(ReplicaCheckTest, NamesTheOpWhoseReplicasDiffer) {
  comm::run_threads(
      2,
      [](std::shared_ptr<comm::Communicator> world) {
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"x", 2}};
        const spmd::Mesh mesh(*context, world, axes);
        const spmd::ReplicaCheckScope check(mesh);
        const Variable same(Tensor::zeros(*context, {4}, DType::kF64), mesh.invariant());
        EXPECT_NO_THROW(autograd::scale(same, 2.0));
        const Variable liar(Tensor::from(*context, {1}, std::vector<double>{1.0 + world->rank()}),
                            mesh.invariant());
        try {
          autograd::scale(liar, 2.0);
          ADD_FAILURE() << "different replicas were accepted";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kShardingType);
          EXPECT_NE(error.message().find("scale"), std::string::npos);
        }
      },
      kTimeout);
}

TEST(ReplicaCheckTest, NamesTheOpWhoseGradientsDiffer) {
  comm::run_threads(
      2,
      [](std::shared_ptr<comm::Communicator> world) {
        const auto context = make_context(*world);
        const spmd::AxisSpec axes[] = {{"x", 2}};
        const spmd::Mesh mesh(*context, world, axes);
        const Variable x(Tensor::zeros(*context, {1}, DType::kF64), mesh.invariant(),
                         autograd::TakesGradient::kYes);
        const spmd::ReplicaCheckScope check(mesh);
        const Variable y = autograd::scale(x, 2.0);
        const std::vector<double> lie{1.0 + world->rank()};  // dy must be one value for I
        try {
          autograd::backward(y, Tensor::from(*context, {1}, lie));
          ADD_FAILURE() << "different replicas were accepted";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kShardingType);
          EXPECT_NE(error.message().find("scale: the gradient is I"), std::string::npos)
              << error.message();
        }
      },
      kTimeout);
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/sharding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tessera/core/context.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
namespace {

AxisTable two_axes() { return AxisTable{{{"dp", 2, 1}, {"tp", 4, 0}}}; }

TEST(AxisTypeTest, DualExchangesReplicateAndPartial) {
  EXPECT_EQ(AxisType::replicate().dual(), AxisType::partial());
  EXPECT_EQ(AxisType::partial().dual(), AxisType::replicate());
}

TEST(AxisTypeTest, InvariantShardAndVaryingAreTheirOwnDuals) {
  for (const AxisType type : {AxisType::invariant(), AxisType::varying(), AxisType::shard(0),
                              AxisType::shard(2, 64, 1)}) {
    EXPECT_EQ(type.dual(), type) << to_string(type);
  }
}

TEST(AxisTypeTest, DualOfDualIsTheType) {
  for (const AxisType type : {AxisType::replicate(), AxisType::invariant(), AxisType::varying(),
                              AxisType::partial(), AxisType::shard(1, 8)}) {
    EXPECT_EQ(type.dual().dual(), type) << to_string(type);
  }
}

TEST(AxisTypeTest, HasAShortName) {
  EXPECT_EQ(to_string(AxisType::replicate()), "R");
  EXPECT_EQ(to_string(AxisType::invariant()), "I");
  EXPECT_EQ(to_string(AxisType::varying()), "V");
  EXPECT_EQ(to_string(AxisType::partial()), "P");
  EXPECT_EQ(to_string(AxisType::shard(0)), "S(0)");
  EXPECT_EQ(to_string(AxisType::shard(0, 64)), "S(0, unit 64)");
  EXPECT_EQ(to_string(AxisType::shard(0, 64).of(640)), "S(0 of 640, unit 64)");
  EXPECT_EQ(to_string(AxisType::shard(1, 1, 2).of(8)), "S(1 of 8, order 2)");
}

TEST(AxisTypeTest, ShardsDifferByDimUnitAndOrder) {
  EXPECT_EQ(AxisType::shard(1), AxisType::shard(1, 1, 0));
  EXPECT_FALSE(AxisType::shard(1) == AxisType::shard(0));
  EXPECT_FALSE(AxisType::shard(1) == AxisType::shard(1, 2));
  EXPECT_FALSE(AxisType::shard(1) == AxisType::shard(1, 1, 1));
  EXPECT_FALSE(AxisType::shard(1).of(4) == AxisType::shard(1).of(5));
}

TEST(AxisTableTest, FindsAxesByName) {
  const AxisTable table = two_axes();
  EXPECT_EQ(table.find("dp"), 0);
  EXPECT_EQ(table.find("tp"), 1);
  EXPECT_EQ(table.find("pp"), -1);
}

TEST(AxisTableTest, InterningGivesOnePointerPerTable) {
  const auto context = Context::create();
  const AxisTable* first = context->intern_axes(two_axes());
  AxisTable other = two_axes();
  other.axes[1].coordinate = 3;
  const AxisTable* second = context->intern_axes(other);
  for (int i = 0; i < 20; ++i) context->intern_axes(AxisTable{{{"x", i + 1, 0}}});
  EXPECT_NE(first, second);
  EXPECT_EQ(context->intern_axes(two_axes()), first);
  EXPECT_EQ(context->intern_axes(other), second);
  EXPECT_EQ(*first, two_axes());
}

TEST(AxisTableTest, InterningRejectsTooManyAxes) {
  const auto context = Context::create();
  AxisTable table;
  for (int i = 0; i < kMaxAxes; ++i) table.axes.push_back({"a" + std::to_string(i), 1, 0});
  EXPECT_NO_THROW(context->intern_axes(table));
  table.axes.push_back({"one more", 1, 0});
  EXPECT_THROW(context->intern_axes(table), Error);
}

TEST(ShardingTypeTest, WithoutMeshHasNoAxes) {
  const ShardingType type;
  EXPECT_EQ(type.axes(), nullptr);
  EXPECT_EQ(type.count(), 0);
  EXPECT_EQ(to_string(type), "no mesh");
  EXPECT_EQ(type.dual(), type);
  EXPECT_THROW(type.with(0, AxisType::replicate()), Error);
}

TEST(ShardingTypeTest, IsInvariantUnlessSaid) {
  const AxisTable table = two_axes();
  EXPECT_EQ(to_string(ShardingType(&table)), "dp: I, tp: I");
  EXPECT_EQ(to_string(ShardingType(&table, AxisType::replicate())), "dp: R, tp: R");
}

TEST(ShardingTypeTest, WithChangesOneAxisOfACopy) {
  const AxisTable table = two_axes();
  const ShardingType type(&table);
  const ShardingType changed = type.with(0, AxisType::shard(0));
  EXPECT_EQ(to_string(changed), "dp: S(0), tp: I");
  EXPECT_EQ(to_string(type), "dp: I, tp: I");
  EXPECT_FALSE(changed == type);
  EXPECT_THROW(type.with(2, AxisType::replicate()), Error);
  EXPECT_THROW(type.with(-1, AxisType::replicate()), Error);
}

TEST(ShardingTypeTest, DualActsOnEveryAxis) {
  const AxisTable table = two_axes();
  const ShardingType type =
      ShardingType(&table).with(0, AxisType::replicate()).with(1, AxisType::shard(1, 8));
  EXPECT_EQ(to_string(type.dual()), "dp: P, tp: S(1, unit 8)");
  EXPECT_EQ(type.dual().dual(), type);
}

TEST(ShardingTypeTest, TypesOfDifferentMeshesDiffer) {
  const AxisTable a = two_axes();
  const AxisTable b = two_axes();
  EXPECT_FALSE(ShardingType(&a) == ShardingType(&b));
  EXPECT_FALSE(ShardingType(&a) == ShardingType());
}

/// The message of the error that `over` throws, or nothing.
std::string rejected(const ShardingType& type, const Shape& local) {
  try {
    type.over(local);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShardingType);
    return error.message();
  }
  return {};
}

TEST(ShardingTypeTest, OverALocalShapeKnowsTheWhole) {
  const AxisTable table = two_axes();  // dp 1 of 2, tp 0 of 4
  const ShardingType rows = ShardingType(&table).with(0, AxisType::shard(0));
  EXPECT_EQ(rows.over({3, 5})[0], AxisType::shard(0).of(6));
  const ShardingType both = rows.with(1, AxisType::shard(0, 1, 1));
  EXPECT_EQ(both.over({3})[0], AxisType::shard(0).of(24));
  EXPECT_EQ(both.over({3})[1], AxisType::shard(0, 1, 1).of(24));
  // One axis that says the size is enough for all splits of the dim.
  const ShardingType uneven = both.with(0, AxisType::shard(0).of(7));  // 4 3, then 1 1 1 0
  EXPECT_EQ(uneven.over({1})[1], AxisType::shard(0, 1, 1).of(7));
  EXPECT_EQ(uneven.range(0, 7), (ChunkRange{4, 1}));
  EXPECT_EQ(rows.range(0, 5), (ChunkRange{3, 2}));
  EXPECT_EQ(rows.range(1, 5), (ChunkRange{0, 5}));
  EXPECT_EQ(rows.over({0})[0], AxisType::shard(0).of(0));
  EXPECT_EQ(ShardingType().over({3}), ShardingType());
}

TEST(ShardingTypeTest, OverALocalShapeRejectsWhatDoesNotFit) {
  const AxisTable table = two_axes();
  const ShardingType rows = ShardingType(&table).with(0, AxisType::shard(0));
  EXPECT_NE(rejected(rows, {}).find("no such dim"), std::string::npos);
  EXPECT_NE(rejected(rows.with(0, AxisType::shard(0).of(5)), {3}).find("5 elements has 2"),
            std::string::npos);
  EXPECT_NE(rejected(rows.with(0, AxisType::shard(0, 2)), {3}).find("6 elements has 2"),
            std::string::npos);  // units of 2: 4 and 2, so not alike
  EXPECT_NE(rejected(rows.with(1, AxisType::shard(0)), {3}).find("orders"), std::string::npos);
  EXPECT_NE(rejected(ShardingType(&table).with(1, AxisType::shard(0, 1, 1)), {3}).find("orders"),
            std::string::npos);
  const ShardingType differ =
      rows.with(0, AxisType::shard(0).of(24)).with(1, AxisType::shard(0, 1, 1).of(25));
  EXPECT_NE(rejected(differ, {3}).find("different sizes"), std::string::npos);
}

TEST(BalancedChunkTest, CoversTheRangeInOrderWithWholeBalancedUnits) {
  for (std::int64_t size = 0; size <= 40; ++size) {
    for (const std::int64_t unit : {1, 2, 3, 7, 50}) {
      for (int parts = 1; parts <= 9; ++parts) {
        std::int64_t next = 0;
        std::int64_t fewest = size;
        std::int64_t most = 0;
        for (int i = 0; i < parts; ++i) {
          const ChunkRange chunk = balanced_chunk(size, unit, parts, i);
          ASSERT_EQ(chunk.first, next);
          ASSERT_GE(chunk.size, 0);
          next += chunk.size;
          if (next != size) {
            ASSERT_EQ(chunk.size % unit, 0);
          }
          const std::int64_t units = (chunk.size + unit - 1) / unit;
          fewest = std::min(fewest, units);
          most = std::max(most, units);
        }
        ASSERT_EQ(next, size);
        ASSERT_LE(most - fewest, 1) << size << " in units of " << unit << " over " << parts;
      }
    }
  }
}

TEST(BalancedChunkTest, FirstChunksHoldTheExtraUnits) {
  EXPECT_EQ(balanced_chunk(10, 1, 4, 0), (ChunkRange{0, 3}));
  EXPECT_EQ(balanced_chunk(10, 1, 4, 1), (ChunkRange{3, 3}));
  EXPECT_EQ(balanced_chunk(10, 1, 4, 2), (ChunkRange{6, 2}));
  EXPECT_EQ(balanced_chunk(10, 1, 4, 3), (ChunkRange{8, 2}));
}

TEST(BalancedChunkTest, LastPartialUnitCountsAsAUnit) {
  EXPECT_EQ(balanced_chunk(10, 4, 2, 0), (ChunkRange{0, 8}));
  EXPECT_EQ(balanced_chunk(10, 4, 2, 1), (ChunkRange{8, 2}));
  EXPECT_EQ(balanced_chunk(10, 4, 5, 4), (ChunkRange{10, 0}));
}

TEST(BalancedChunkTest, RejectsWhatIsNoChunk) {
  EXPECT_THROW(balanced_chunk(-1, 1, 2, 0), Error);
  EXPECT_THROW(balanced_chunk(8, 0, 2, 0), Error);
  EXPECT_THROW(balanced_chunk(8, 1, 0, 0), Error);
  EXPECT_THROW(balanced_chunk(8, 1, 2, 2), Error);
  EXPECT_THROW(balanced_chunk(8, 1, 2, -1), Error);
}

}  // namespace
}  // namespace tessera

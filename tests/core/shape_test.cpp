// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/shape.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tessera/core/error.hpp"

namespace tessera {
namespace {

TEST(ShapeTest, HoldsDimsInOrder) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[2], 5);
  EXPECT_EQ(shape.back(0), 5);
  EXPECT_EQ(shape.back(2), 2);
  EXPECT_EQ(std::vector<std::int64_t>(shape.begin(), shape.end()),
            (std::vector<std::int64_t>{2, 3, 5}));
  EXPECT_EQ(shape.to_string(), "[2, 3, 5]");
  EXPECT_EQ(Shape{}.to_string(), "[]");
}

TEST(ShapeTest, NumelIsTheProductAndOneForRankZero) {
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{2, 3, 5}).numel(), 30);
  EXPECT_EQ((Shape{2, 0, 5}).numel(), 0);
  EXPECT_EQ((Shape{2, 3, 5}).numel(1, 3), 15);
  EXPECT_EQ((Shape{2, 3, 5}).numel(1, 1), 1);
}

TEST(ShapeTest, SliceTakesDims) {
  EXPECT_EQ((Shape{2, 3, 5}).slice(1, 3), (Shape{3, 5}));
  EXPECT_EQ((Shape{2, 3, 5}).slice(2, 2), Shape{});
}

TEST(ShapeTest, EqualityComparesRankAndDims) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
  EXPECT_FALSE((Shape{2}) == (Shape{2, 0}));  // unused dims are zero inside
  EXPECT_EQ(Shape::filled(3, 4), (Shape{4, 4, 4}));
}

TEST(ShapeTest, EqualityIgnoresWhatWasThereBefore) {
  Shape a{1, 2, 3};
  a = Shape{1, 2};
  EXPECT_EQ(a, (Shape{1, 2}));
}

TEST(ShapeTest, RejectsMoreThanEightDims) {
  Shape shape = Shape::filled(kMaxRank, 1);
  try {
    shape.push_back(1);
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShape);
  }
}

TEST(ContiguousStridesTest, AreProductsOfLaterDims) {
  EXPECT_EQ(contiguous_strides({2, 3, 5}), (Shape{15, 5, 1}));
  EXPECT_EQ(contiguous_strides({7}), (Shape{1}));
  EXPECT_EQ(contiguous_strides({}), Shape{});
}

TEST(BroadcastShapesTest, AlignsFromTheRight) {
  EXPECT_EQ(broadcast_shapes({2, 3}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({4, 1, 3}, {2, 1}), (Shape{4, 2, 3}));
  EXPECT_EQ(broadcast_shapes({}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({3}, {2, 3}), (Shape{2, 3}));
}

TEST(BroadcastShapesTest, OneGivesWayToZero) {
  EXPECT_EQ(broadcast_shapes({1, 3}, {0, 3}), (Shape{0, 3}));
  EXPECT_EQ(broadcast_shapes({0, 3}, {1, 3}), (Shape{0, 3}));
}

TEST(BroadcastShapesTest, RejectsSizesThatDiffer) {
  try {
    broadcast_shapes({2, 3}, {2, 4});
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShape);
    EXPECT_NE(error.message().find("[2, 3]"), std::string::npos);
    EXPECT_NE(error.message().find("[2, 4]"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/error.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tessera {
namespace {

TEST(ErrorTest, WhatSaysMessageCodeFileAndLine) {
  const int line = __LINE__ + 1;
  const Error error(ErrorCode::kShape, "matmul: [2, 3] times [4, 5]");
  EXPECT_EQ(error.what(),
            fmt::format("matmul: [2, 3] times [4, 5] (kShape, error_test.cpp:{})", line));
  EXPECT_EQ(error.message(), "matmul: [2, 3] times [4, 5]");
  EXPECT_EQ(error.code(), ErrorCode::kShape);
  EXPECT_EQ(error.rank(), -1);
  EXPECT_EQ(error.where().line(), static_cast<unsigned>(line));
}

TEST(ErrorTest, WithRankKeepsTheFirstKnownRank) {
  const Error error(ErrorCode::kIo, "no such file");
  const Error first = error.with_rank(3);
  const Error second = first.with_rank(5);
  EXPECT_EQ(first.rank(), 3);
  EXPECT_EQ(second.rank(), 3);
  EXPECT_EQ(std::string(second.what()).rfind("[rank 3] no such file (kIo, ", 0), 0U)
      << second.what();
  EXPECT_EQ(second.where().line(), error.where().line());
  EXPECT_EQ(error.rank(), -1);
}

TEST(ErrorTest, IsAStandardException) {
  EXPECT_THROW(throw Error(ErrorCode::kInternal, "x"), std::exception);
}

TEST(ErrorTest, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  const int count = static_cast<int>(ErrorCode::kInternal) + 1;
  for (int i = 0; i < count; ++i) names.insert(to_string(static_cast<ErrorCode>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(names.count("unknown"), 0U);
  EXPECT_STREQ(to_string(ErrorCode::kOutOfMemory), "kOutOfMemory");
}

TEST(CheckTest, ThrowsInvalidArgumentFromWhereItStands) {
  unsigned line = 0;
  try {
    line = __LINE__ + 1;
    TESSERA_CHECK(1 + 1 == 3, "heads must divide width {}, not {}", 64, 5);
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.message(), "heads must divide width 64, not 5");
    EXPECT_EQ(error.where().line(), line);
  }
}

TEST(CheckTest, EvaluatesTheConditionOnceAndTheMessageOnlyOnFailure) {
  int conditions = 0;
  int messages = 0;
  TESSERA_CHECK(++conditions > 0, "{}", ++messages);
  EXPECT_EQ(conditions, 1);
  EXPECT_EQ(messages, 0);
}

TEST(CheckTest, IsOneStatement) {
  bool reached_else = false;
  if (false)
    TESSERA_CHECK(false, "unreached");
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

}  // namespace
}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
#include "tessera/io/json_line.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace tessera::io {
namespace {

TEST(JsonLineTest, KeepsTheOrderOfKeys) {
  JsonLine inner;
  inner.integer("a", 1);
  JsonLine line;
  line.integer("z", -3).text("b", "x\"y\n").object("inner", inner);
  EXPECT_EQ(line.str(), R"({"z":-3,"b":"x\"y\n","inner":{"a":1}})");
  EXPECT_EQ(JsonLine().str(), "{}");
}

TEST(JsonLineTest, NumbersComeBackExactly) {
  for (const double value : {0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, -0.0, 1e21}) {
    JsonLine line;
    line.number("v", value);
    const std::string text = line.str();
    const double read = std::strtod(text.c_str() + 5, nullptr);
    EXPECT_EQ(read, value) << text;
    EXPECT_EQ(std::signbit(read), std::signbit(value)) << text;
  }
}

TEST(JsonLineTest, NonfiniteNumbersAreNullAndListed) {
  JsonLine line;
  line.number("loss", std::numeric_limits<double>::quiet_NaN())
      .number("lr", 0.5)
      .number("grad_norm", -std::numeric_limits<double>::infinity());
  EXPECT_EQ(line.str(),
            R"({"loss":null,"lr":0.5,"grad_norm":null,"nonfinite":["loss","grad_norm"]})");
}

TEST(JsonLineTest, ReplacesBytesThatAreNotUtf8) {
  JsonLine line;
  line.text("t", "a\xff");
  EXPECT_EQ(line.str(), "{\"t\":\"a\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace tessera::io

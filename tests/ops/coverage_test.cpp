// SPDX-License-Identifier: Apache-2.0
// Every op has a source, a CPU kernel and tests under its own name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST(OpsCoverageTest, EveryHeaderHasSourceKernelAndTests) {
  const fs::path root = TESSERA_SOURCE_DIR;
  int ops = 0;
  for (const auto& entry : fs::directory_iterator(root / "include/tessera/ops")) {
    const std::string stem = entry.path().stem().string();
    ++ops;
    EXPECT_TRUE(fs::exists(root / "src/ops" / (stem + ".cpp"))) << stem << " has no source";
    EXPECT_TRUE(fs::exists(root / "kernels/cpu" / (stem + ".cpp"))) << stem << " has no CPU kernel";
    std::ifstream file(root / "tests/ops" / (stem + "_test.cpp"));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(text.find("tessera/ops/" + stem + ".hpp"), std::string::npos)
        << stem << " has no tests/ops/" << stem << "_test.cpp that includes its header";
    EXPECT_NE(text.find("TEST"), std::string::npos) << stem << " has no test cases";
  }
  EXPECT_GT(ops, 0);
}

}  // namespace
}  // namespace tessera

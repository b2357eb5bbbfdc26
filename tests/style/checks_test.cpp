// SPDX-License-Identifier: Apache-2.0
// Every check finds its fault in a small tree, at the right line, and nothing in a clean one.
#include "checks.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace tessera::style {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSpdx = "// SPDX-License-Identifier: Apache-2.0\n";

class StyleChecks : public testing::Test {
 protected:
  StyleChecks() {
    std::string pattern = (fs::temp_directory_path() / "style-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    write("layers.txt", "core 0 \nops 1 core\ncomm 1 core\nspmd 2 ops comm\n");
    table_ = fs::temp_directory_path() / (root_.filename().string() + ".layers");
    fs::rename(root_ / "layers.txt", table_);
    write("include/tessera/core/a.hpp", std::string(kSpdx) + "#pragma once\n#include <string>\n");
    write("src/ops/a.cpp", std::string(kSpdx) + "#include \"tessera/core/a.hpp\"\nint a;\n");
    write("tests/ops/a_test.cpp", std::string(kSpdx) + "TEST(ATest, IsA) {}\n");
    write("README.md", "# A\nSee [the source](src/ops/a.cpp).\n");
    write(".clang-format", "BasedOnStyle: Google\n");
  }
  ~StyleChecks() override {
    fs::remove_all(root_);
    fs::remove(table_);
  }

  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  using Check = Findings (*)(const Tree&, const Layers&);
  Findings run(Check check) const { return check(read_tree(root_), Layers(table_)); }
  void expect_one(Check check, const std::string& file, int line) const {
    const Findings findings = run(check);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].file, file);
    EXPECT_EQ(findings[0].line, line);
  }

  fs::path root_;
  fs::path table_;
};

TEST_F(StyleChecks, FindNothingInACleanTree) {
  for (const Check check : {check_layers, check_headers, check_length, check_license,
                            check_top_level, check_docs, check_unfinished, check_tests}) {
    const Findings findings = run(check);
    EXPECT_TRUE(findings.empty()) << findings[0].file << ": " << findings[0].text;
  }
}

TEST_F(StyleChecks, LayersRejectsTheSameLevel) {
  write("src/ops/b.cpp", "\n#include \"tessera/comm/x.hpp\"\n");
  expect_one(check_layers, "src/ops/b.cpp", 2);
}

TEST_F(StyleChecks, LayersRejectsAHigherLevel) {
  write("include/tessera/core/b.hpp", "#  include <tessera/spmd/x.hpp>\n");
  expect_one(check_layers, "include/tessera/core/b.hpp", 1);
}

TEST_F(StyleChecks, LayersCountsKernelsAsOps) {
  write("kernels/cpu/b.cpp", "#include \"tessera/spmd/x.hpp\"\n");
  expect_one(check_layers, "kernels/cpu/b.cpp", 1);
}

TEST_F(StyleChecks, LayersAcceptsIndirectDependencies) {
  write("src/spmd/b.cpp", "#include \"tessera/core/x.hpp\"\n#include \"tessera/comm/x.hpp\"\n");
  EXPECT_TRUE(run(check_layers).empty());
}

TEST_F(StyleChecks, LayersRejectsUnknownLayers) {
  write("src/magic/b.cpp", "int b;\n");
  expect_one(check_layers, "src/magic/b.cpp", 0);
}

TEST_F(StyleChecks, LayersRejectsParentDirectories) {
  write("src/ops/b.cpp", "#include \"../comm/x.hpp\"\n");
  expect_one(check_layers, "src/ops/b.cpp", 1);
}

TEST_F(StyleChecks, HeadersRejectsMpiOutsideMpiHpp) {
  write("include/tessera/comm/mpi.hpp", "#pragma once\n#include <mpi.h>\n");
  EXPECT_TRUE(run(check_headers).empty());
  write("include/tessera/comm/b.hpp", "#pragma once\n#include <mpi.h>\n");
  expect_one(check_headers, "include/tessera/comm/b.hpp", 2);
}

TEST_F(StyleChecks, HeadersRejectsBuildFlagsOutsideDeviceHpp) {
  write("include/tessera/core/device.hpp", "#pragma once\n#ifdef TESSERA_CUDA\n#endif\n");
  EXPECT_TRUE(run(check_headers).empty());
  write("include/tessera/core/b.hpp", "#pragma once\n#if defined(TESSERA_CUDA)\n#endif\n");
  expect_one(check_headers, "include/tessera/core/b.hpp", 2);
}

TEST_F(StyleChecks, HeadersRejectsPrivateHeaders) {
  write("include/tessera/core/b.hpp", "#pragma once\n#include \"state.hpp\"\n");
  expect_one(check_headers, "include/tessera/core/b.hpp", 2);
}

TEST_F(StyleChecks, HeadersRejectsAMissingGuard) {
  write("include/tessera/core/b.hpp", "int b();\n");
  expect_one(check_headers, "include/tessera/core/b.hpp", 1);
}

TEST_F(StyleChecks, LengthAllows600LinesAndKernels800) {
  std::string lines;
  for (int i = 0; i < 600; ++i) lines += "\n";
  write("src/ops/b.cpp", lines);
  write("kernels/cpu/b.cpp", lines + "\n");
  EXPECT_TRUE(run(check_length).empty());
  write("src/ops/b.cpp", lines + "\n");
  expect_one(check_length, "src/ops/b.cpp", 601);
}

TEST_F(StyleChecks, LicenseRejectsAMissingLine) {
  write("src/ops/b.cpp", "int b;\n");
  expect_one(check_license, "src/ops/b.cpp", 1);
}

TEST_F(StyleChecks, LicenseLooksBehindTheShebang) {
  write("examples/b.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n");
  EXPECT_TRUE(run(check_license).empty());
  write("examples/b.sh", "#!/bin/sh\necho\n");
  expect_one(check_license, "examples/b.sh", 2);
}

TEST_F(StyleChecks, FormatRejectsWhatClangFormatWouldChange) {
  write("src/ops/b.cpp", "int a;\nint   b;\n");
  try {
    const Findings findings = run(check_format);
    ASSERT_FALSE(findings.empty());
    EXPECT_EQ(findings[0].file, "src/ops/b.cpp");
    EXPECT_EQ(findings[0].line, 2);
  } catch (const Skipped& reason) {
    GTEST_SKIP() << reason.what();
  }
}

TEST_F(StyleChecks, TopLevelRejectsOtherEntries) {
  write("scripts/b.sh", "");
  expect_one(check_top_level, "scripts", 0);
}

TEST_F(StyleChecks, DocsRejectsLinksToNothing) {
  write("docs/b.md", "# B\n\n[a](../README.md) [b](c.md)\n");
  expect_one(check_docs, "docs/b.md", 3);
}

TEST_F(StyleChecks, DocsRejectsAdvertising) {
  write("docs/b.md", "A blazingly fast library.\n");
  expect_one(check_docs, "docs/b.md", 1);
}

TEST_F(StyleChecks, DocsRejectsPathsOfOneMachine) {
  write("docs/b.md", "Run `/home/me/tessera`.\n");
  expect_one(check_docs, "docs/b.md", 1);
}

TEST_F(StyleChecks, DocsRejectsALongReadme) {
  std::string words;
  for (int i = 0; i < 1501; ++i) words += "word ";
  write("README.md", words);
  expect_one(check_docs, "README.md", 0);
}

TEST_F(StyleChecks, UnfinishedNeedsAnIssue) {
  write("src/ops/b.cpp", "// TODO(#12): more\n// TODO: more\n");
  expect_one(check_unfinished, "src/ops/b.cpp", 2);
}

TEST_F(StyleChecks, TestsRejectsFilesThatAreNotBuilt) {
  write("tests/ops/b.cpp", "");
  expect_one(check_tests, "tests/ops/b.cpp", 0);
}

TEST_F(StyleChecks, TestsRejectsDirectoriesWithoutALayer) {
  write("tests/magic/b_test.cpp", "");
  expect_one(check_tests, "tests/magic/b_test.cpp", 0);
}

TEST_F(StyleChecks, TestsRejectsMpiSuitesOutsideMpirun) {
  write("tests/comm/mpi_b_test.cpp", "TEST_F(MpiBTest, IsB) {}\n");
  EXPECT_TRUE(run(check_tests).empty());
  write("tests/comm/b_test.cpp", "TEST_F(MpiBTest, IsB) {}\n");
  expect_one(check_tests, "tests/comm/b_test.cpp", 1);
}

TEST_F(StyleChecks, TestsRejectsSwitchedOffCases) {
  write("tests/comm/b_test.cpp", "TEST(BTest, DISABLED_IsB) {}\n");
  expect_one(check_tests, "tests/comm/b_test.cpp", 1);
}

}  // namespace
}  // namespace tessera::style

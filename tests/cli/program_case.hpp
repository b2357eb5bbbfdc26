// SPDX-License-Identifier: Apache-2.0
// A scratch directory with a small text and a small configuration, and the programs run in it.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "process.hpp"

namespace tessera::testing {

class ProgramCase : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ =
        std::filesystem::path(::testing::TempDir()) /
        (std::string("tessera_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() +
         "_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    std::string text;
    for (int i = 0; i < 60; ++i) text += "The quick brown fox jumps over the lazy dog.\n";
    write("book.txt", text);
    write("run.toml",
          "[model]\nlayers = 1\nwidth = 16\nheads = 2\n[data]\npath = \"book.txt\"\n"
          "[train]\nsteps = 4\nbatch = 4\nsequence = 16\n[optim]\nwarmup = 1\n"
          "[log]\ndirectory = \"out\"\nsample = 8\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ / name, std::ios::binary) << text;
  }

  /// "tessera train run.toml" with assignments.
  static std::vector<std::string> train(const std::vector<std::string>& assignments = {}) {
    std::vector<std::string> command = {tessera(), "train", "run.toml"};
    for (const std::string& assignment : assignments) {
      command.insert(command.end(), {"--set", assignment});
    }
    return command;
  }
  static std::string tessera() { return build_directory() / "bin" / "tessera"; }
  static std::string train_gpt() { return build_directory() / "examples" / "train_gpt"; }

  /// One error line with all of `parts`, the exit code, and no run directory.
  void expect_error(const ProcessResult& result, int code,
                    const std::vector<std::string>& parts) const {
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(count_of(result.err, "tessera: error: "), 1) << result.err;
    for (const std::string& part : parts) {
      EXPECT_NE(result.err.find(part), std::string::npos) << result.err << "lacks: " << part;
    }
  }
  void expect_no_run() const { EXPECT_FALSE(std::filesystem::exists(root_ / "out")); }

  /// The lines of metrics.jsonl; a cut one is a failure.
  std::vector<nlohmann::json> metrics(const std::string& directory = "out") const {
    const std::string text = read_text(root_ / directory / "metrics.jsonl");
    EXPECT_TRUE(text.empty() || text.back() == '\n');
    std::vector<nlohmann::json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(nlohmann::json::parse(line, nullptr, false));
      EXPECT_FALSE(lines.back().is_discarded()) << line;
    }
    return lines;
  }
  std::vector<std::string> files(const std::string& directory = "out") const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root_ / directory)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::filesystem::path root_;
};

}  // namespace tessera::testing

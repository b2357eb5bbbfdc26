// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/run_directory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "file_size_limit.hpp"
#include "tessera/comm/backends.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/file.hpp"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

class RunDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            (std::string("run_directory_") +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
    config_.data.path = "book.txt";
    config_.log.directory = (root_ / "runs" / "a").string();
  }
  void TearDown() override { fs::remove_all(root_); }

  /// Opens the run directory and says what went wrong.
  std::string open(ErrorCode expected) {
    try {
      RunDirectory directory(config_, *world_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), expected) << error.what();
      return error.message();
    }
    return "no error";
  }
  std::ptrdiff_t entries(const fs::path& path) const {
    return std::distance(fs::directory_iterator(path), fs::directory_iterator());
  }

  fs::path root_;
  Config config_;
  std::shared_ptr<comm::Communicator> world_ = comm::make_world("self");
};

TEST_F(RunDirectoryTest, HoldsTheResolvedConfigurationAndWholeLines) {
  RunDirectory directory(config_, *world_);
  directory.append_metrics("{\"step\":1}");
  directory.append_metrics("{\"step\":2}");
  EXPECT_EQ(io::read_file(directory.path() / "config.toml"), to_toml(config_));
  EXPECT_EQ(io::read_file(directory.path() / "metrics.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(entries(directory.path()), 2);
}

TEST_F(RunDirectoryTest, ExistingRunIsKeptAndTheErrorSaysHowToGoOn) {
  {
    RunDirectory directory(config_, *world_);
    directory.append_metrics("{}");
  }
  const std::string message = open(ErrorCode::kConfig);
  EXPECT_NE(message.find("already holds a run"), std::string::npos) << message;
  EXPECT_NE(message.find("another log.directory"), std::string::npos) << message;
  EXPECT_NE(message.find("log.overwrite=true"), std::string::npos) << message;
  EXPECT_EQ(io::read_file(root_ / "runs" / "a" / "metrics.jsonl"), "{}\n");
}

TEST_F(RunDirectoryTest, TwoRunsAtOnceDoNotShareIt) {
  config_.log.overwrite = true;
  {
    RunDirectory first(config_, *world_);
    first.append_metrics("{\"step\":1}");
    EXPECT_NE(open(ErrorCode::kConfig).find("another run is writing"), std::string::npos);
    first.append_metrics("{\"step\":2}");
    EXPECT_EQ(io::read_file(first.path() / "metrics.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
  }
  EXPECT_EQ(open(ErrorCode::kConfig), "no error");
}

TEST_F(RunDirectoryTest, OverwriteReplacesTheRunAndNothingElse) {
  const fs::path run = root_ / "runs" / "a";
  fs::create_directories(run);
  for (const char* name : {"config.toml", "metrics.jsonl", "model.safetensors", "notes.txt"}) {
    io::write_file_atomically(run / name, "old");
  }
  config_.log.overwrite = true;
  EXPECT_EQ(open(ErrorCode::kInternal), "no error");
  EXPECT_EQ(io::read_file(run / "config.toml"), to_toml(config_));
  EXPECT_EQ(io::read_file(run / "metrics.jsonl"), "");
  EXPECT_EQ(io::read_file(run / "notes.txt"), "old");
  EXPECT_FALSE(fs::exists(run / "model.safetensors"));
}

TEST_F(RunDirectoryTest, EmptyDirectoryIsTakenAndForeignFilesAreNot) {
  fs::create_directories(root_ / "runs" / "a");
  EXPECT_EQ(open(ErrorCode::kInternal), "no error");
  config_.log.directory = (root_ / "foreign").string();
  fs::create_directories(root_ / "foreign");
  io::write_file_atomically(root_ / "foreign" / "thesis.txt", "precious");
  EXPECT_NE(open(ErrorCode::kConfig).find("is not empty"), std::string::npos);
  EXPECT_EQ(entries(root_ / "foreign"), 1);
}

TEST_F(RunDirectoryTest, FileInItsPlaceIsRejected) {
  io::write_file_atomically(root_ / "file", "precious");
  config_.log.directory = (root_ / "file").string();
  EXPECT_NE(open(ErrorCode::kConfig).find("is not a directory"), std::string::npos);
  config_.log.directory = (root_ / "file" / "below").string();
  EXPECT_NE(open(ErrorCode::kIo).find("Not a directory"), std::string::npos);
  EXPECT_EQ(io::read_file(root_ / "file"), "precious");
}

TEST_F(RunDirectoryTest, ReadOnlyPlaceIsNamedAndNothingIsLeft) {
  fs::permissions(root_, static_cast<fs::perms>(0555));
  constexpr uid_t kNobody = 65534;
  const bool is_root = geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const std::string message = open(ErrorCode::kIo);
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  fs::permissions(root_, fs::perms::owner_all);
  EXPECT_NE(message.find("cannot make the run directory (log.directory) " + config_.log.directory),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("Permission denied"), std::string::npos) << message;
  EXPECT_EQ(entries(root_), 0);
}

TEST_F(RunDirectoryTest, FullDiskAtTheStartLeavesNothing) {
  std::string message;
  {
    const testing::FileSizeLimit limit(100);
    message = open(ErrorCode::kIo);
  }
  EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
  EXPECT_NE(message.find("config.toml"), std::string::npos) << message;
  EXPECT_EQ(entries(root_), 0);
}

TEST_F(RunDirectoryTest, FullDiskLaterLeavesWholeLines) {
  RunDirectory directory(config_, *world_);
  const std::string line(60, 'x');
  std::string message;
  {
    const testing::FileSizeLimit limit(100);
    directory.append_metrics(line);
    try {
      directory.append_metrics(line);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      message = error.message();
    }
  }
  EXPECT_NE(message.find("metrics.jsonl"), std::string::npos) << message;
  EXPECT_EQ(io::read_file(directory.path() / "metrics.jsonl"), line + "\n");
}

}  // namespace
}  // namespace tessera::train

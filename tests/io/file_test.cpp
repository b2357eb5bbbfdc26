// SPDX-License-Identifier: Apache-2.0
#include "tessera/io/file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "file_size_limit.hpp"
#include "tessera/core/error.hpp"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(::testing::TempDir()) /
                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(directory_), fs::directory_iterator());
  }

  fs::path directory_;
};

TEST_F(FileTest, ReadsBackAnyBytes) {
  std::string bytes;
  for (int i = 0; i < 300000; ++i) bytes += static_cast<char>(i * 7 % 256);
  write_file_atomically(directory_ / "file", bytes);
  EXPECT_EQ(read_file(directory_ / "file"), bytes);
  write_file_atomically(directory_ / "file", "");
  EXPECT_EQ(read_file(directory_ / "file"), "");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, RefusedWriteLeavesTheOldFile) {
  write_file_atomically(directory_ / "file", "whole");
  std::string message;
  {
    const testing::FileSizeLimit limit(1000);
    try {
      write_file_atomically(directory_ / "file", std::string(5000, 'x'));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      message = error.message();
    }
  }
  EXPECT_NE(message.find((directory_ / "file").string()), std::string::npos) << message;
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_EQ(read_file(directory_ / "file"), "whole");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, MissingFilesAndDirectoriesAreNamed) {
  for (const fs::path& path : {directory_ / "none", directory_}) {
    try {
      read_file(path);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_NE(error.message().find(path.string()), std::string::npos);
    }
  }
  EXPECT_THROW(write_file_atomically(directory_ / "none" / "file", "x"), Error);
}

}  // namespace
}  // namespace tessera::io

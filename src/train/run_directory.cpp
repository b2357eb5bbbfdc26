// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "tessera/io/file.hpp"

namespace tessera::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfigFile = "config.toml";
constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kWeightsFile = "model.safetensors";

/// Throws unless a run may be written to `path`.
void check_free(const fs::path& path, bool overwrite) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return;
  if (error) io::throw_io_error("look at the run directory", path, error.value());
  if (!fs::is_directory(status)) {
    throw Error(ErrorCode::kConfig, fmt::format("log.directory = {} is not a directory; choose "
                                                "another one",
                                                path.string()));
  }
  if (overwrite) return;
  const bool is_empty = fs::is_empty(path, error);
  if (error) io::throw_io_error("look at the run directory", path, error.value());
  if (is_empty) return;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("the run directory {} {}; choose another log.directory, or replace what "
                  "is there with --set log.overwrite=true",
                  path.string(),
                  fs::exists(path / kConfigFile, error) ? "already holds a run" : "is not empty"));
}

/// Directories that were made for a run; removed again unless kept.
class MadeDirectories {
 public:
  /// Makes `path` and what is missing above it.
  explicit MadeDirectories(const fs::path& path) {
    std::error_code error;
    for (fs::path at = path; !at.empty() && !fs::exists(at, error); at = at.parent_path()) {
      made_.push_back(at);
    }
    fs::create_directories(path, error);
    if (error) {
      remove();
      io::throw_io_error("make the run directory (log.directory)", path, error.value());
    }
  }
  ~MadeDirectories() {
    if (!is_kept_) remove();
  }
  MadeDirectories(const MadeDirectories&) = delete;
  MadeDirectories& operator=(const MadeDirectories&) = delete;
  void keep() { is_kept_ = true; }

 private:
  void remove() {
    std::error_code ignored;
    for (const fs::path& path : made_) fs::remove(path, ignored);
  }

  std::vector<fs::path> made_;  ///< deepest first
  bool is_kept_ = false;
};

}  // namespace

RunDirectory::RunDirectory(const Config& config, comm::Communicator& world)
    : path_(config.log.directory) {
  if (world.rank() == 0) make(config);
  world.barrier().wait();
}

void RunDirectory::make(const Config& config) {
  check_free(path_, config.log.overwrite);
  MadeDirectories directories(path_);
  const fs::path file = path_ / kMetricsFile;
  std::error_code ignored;
  const bool is_new = !fs::exists(file, ignored);
  metrics_ = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (metrics_ < 0) io::throw_io_error("write", file, errno);
  try {
    // The lock goes with the process: a run that was killed leaves none.
    if (flock(metrics_, LOCK_EX | LOCK_NB) != 0) {
      throw Error(ErrorCode::kConfig, fmt::format("another run is writing to {}; choose another "
                                                  "log.directory, or wait for its end",
                                                  path_.string()));
    }
    io::write_file_atomically(path_ / kConfigFile, to_toml(config));
    if (ftruncate(metrics_, 0) != 0) io::throw_io_error("write", file, errno);
  } catch (...) {
    close(metrics_);
    if (is_new) fs::remove(file, ignored);
    throw;
  }
  fs::remove(path_ / kWeightsFile, ignored);  // those of the run that was here
  directories.keep();
}

fs::path RunDirectory::weights() const { return path_ / kWeightsFile; }

RunDirectory::~RunDirectory() {
  if (metrics_ >= 0) close(metrics_);
}

void RunDirectory::append_metrics(std::string_view line) {
  if (metrics_ < 0) return;
  const off_t before = lseek(metrics_, 0, SEEK_END);
  const std::string text = std::string(line) + "\n";
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(metrics_, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      if (ftruncate(metrics_, before) != 0) written = 0;  // nothing more can be done
      io::throw_io_error("write", path_ / kMetricsFile, error);
    }
    written += static_cast<std::size_t>(n);
  }
}

}  // namespace tessera::train

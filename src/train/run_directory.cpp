// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "tessera/io/file.hpp"

namespace tessera::train {

RunDirectory::RunDirectory(const Config& config, comm::Communicator& world)
    : path_(config.log.directory) {
  if (world.rank() == 0) {
    if (std::filesystem::exists(path_ / "config.toml") && !config.log.overwrite) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("{} already holds a run; choose another log.directory, or replace it "
                              "with --set log.overwrite=true",
                              path_.string()));
    }
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    if (error) io::throw_io_error("make the run directory", path_, error.value());
    io::write_file_atomically(path_ / "config.toml", to_toml(config));
    const std::filesystem::path file = path_ / "metrics.jsonl";
    metrics_ = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (metrics_ < 0) io::throw_io_error("write", file, errno);
  }
  world.barrier().wait();
}

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
      if (ftruncate(metrics_, before) !=
          0) {  // the disk refuses even that; the error below says so
      }
      io::throw_io_error("write", path_ / "metrics.jsonl", error);
    }
    written += static_cast<std::size_t>(n);
  }
}

}  // namespace tessera::train

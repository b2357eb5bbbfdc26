// SPDX-License-Identifier: Apache-2.0
#include "tessera/io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "tessera/core/error.hpp"

namespace tessera::io {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

/// Writes all of it, or returns the error.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace

void throw_io_error(std::string_view what, const std::filesystem::path& path, int error) {
  throw Error(ErrorCode::kIo, fmt::format("cannot {} {}: {}", what, path.string(),
                                          std::generic_category().message(error)));
}

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw_io_error("open", path, errno);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) throw_io_error("read", path, errno);
  if (S_ISDIR(info.st_mode)) throw_io_error("read", path, EISDIR);
  std::string bytes;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(file.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("read", path, errno);
    if (n == 0) return bytes;
    bytes.append(buffer, static_cast<std::size_t>(n));
  }
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  const std::filesystem::path part = path.string() + fmt::format(".part-{}", getpid());
  Descriptor file(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) throw_io_error("write", path, errno);
  int error = write_all(file.get(), bytes);
  if (error == 0 && fsync(file.get()) != 0) error = errno;
  if (close(file.release()) != 0 && error == 0) error = errno;
  if (error == 0 && rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(part.c_str());
    throw_io_error("write", path, error);
  }
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  const Descriptor directory(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) fsync(directory.get());
}

}  // namespace tessera::io

// SPDX-License-Identifier: Apache-2.0
#include "tessera/data/text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "tessera/io/file.hpp"

namespace tessera::data {
namespace {

HostBatch empty_batch(std::int64_t rows, std::int64_t sequence) {
  HostBatch batch{rows, sequence, {}, {}};
  batch.tokens.reserve(static_cast<std::size_t>(rows * sequence));
  batch.targets.reserve(static_cast<std::size_t>(rows * sequence));
  return batch;
}

}  // namespace

std::vector<std::int32_t> encode_bytes(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string decode_bytes(std::span<const std::int32_t> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    TESSERA_CHECK(token >= 0 && token < kByteVocabulary, "decode_bytes: {} is not a byte", token);
    text += static_cast<char>(token);
  }
  return text;
}

Batch to_batch(Context& context, const HostBatch& batch) {
  return {Tensor::from(context, {batch.rows, batch.sequence}, batch.tokens),
          Tensor::from(context, {batch.rows, batch.sequence}, batch.targets)};
}

ByteText::ByteText(const std::filesystem::path& path) : path_(path) {
  const auto reject = [&path](const std::string& why) {
    throw Error(ErrorCode::kConfig, fmt::format("the text {} {}; data.path must name a file with "
                                                "text",
                                                path.string(), why));
  };
  // Without O_NONBLOCK a FIFO would wait here for its writer.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) reject(fmt::format("cannot be opened ({})", std::strerror(errno)));
  struct stat info {};
  if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd_);
    reject("is not a regular file");
  }
  size_ = info.st_size;
  if (size_ == 0) {
    close(fd_);
    reject("is empty");
  }
  void* data = mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, fd_, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    close(fd_);
    io::throw_io_error("map the text", path, error);
  }
  data_ = static_cast<const std::uint8_t*>(data);
}

ByteText::~ByteText() {
  if (data_ == nullptr) return;
  munmap(const_cast<std::uint8_t*>(data_), static_cast<std::size_t>(size_));
  close(fd_);
}

std::span<const std::uint8_t> ByteText::bytes() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) io::throw_io_error("look at the text", path_, errno);
  if (info.st_size < size_) {  // pages beyond the end would be a bus error
    throw Error(ErrorCode::kIo, fmt::format("the text {} was cut from {} to {} bytes while it was "
                                            "in use",
                                            path_.string(), size_, info.st_size));
  }
  return {data_, static_cast<std::size_t>(size_)};
}

std::uint64_t ByteText::digest() const {
  constexpr std::int64_t kSamples = 1 << 16;
  const auto text = bytes();
  std::uint64_t hash = 0xcbf29ce484222325ULL ^ static_cast<std::uint64_t>(size_);
  const std::int64_t stride = std::max<std::int64_t>(1, size_ / kSamples);
  for (std::int64_t i = 0; i < size_; i += stride) {
    hash = (hash ^ text[static_cast<std::size_t>(i)]) * 0x100000001b3ULL;
  }
  return hash;
}

ByteSamples::ByteSamples(std::shared_ptr<const ByteText> text, std::int64_t sequence,
                         std::uint64_t seed, double held_out)
    : text_(std::move(text)),
      sequence_(sequence),
      key_(RandomKey{seed}.child("samples")),
      training_size_(text_->size() -
                     static_cast<std::int64_t>(held_out * static_cast<double>(text_->size()))) {
  const std::int64_t rest = text_->size() - training_size_;
  const std::int64_t shorter = std::min(training_size_, rest);
  if (shorter < sequence + 1) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("the text has {} bytes: {} to train on and {} held out, but a window of "
                    "train.sequence = {} needs {}; use a longer text or a shorter sequence",
                    text_->size(), training_size_, rest, sequence, sequence + 1));
  }
}

std::int64_t ByteSamples::training_offset(std::int64_t sample) const {
  const auto places = static_cast<std::uint64_t>(training_windows());
  const auto place = static_cast<std::uint64_t>(
      random_uniform(key_, static_cast<std::uint64_t>(sample)) * static_cast<double>(places));
  return static_cast<std::int64_t>(std::min(place, places - 1));
}

HostBatch ByteSamples::training(std::int64_t first, std::int64_t rows) const {
  HostBatch batch = empty_batch(rows, sequence_);
  const auto bytes = text_->bytes();
  for (std::int64_t row = first; row < first + rows; ++row) {
    const auto start = static_cast<std::size_t>(training_offset(row));
    for (std::size_t i = start; i < start + static_cast<std::size_t>(sequence_); ++i) {
      batch.tokens.push_back(bytes[i]);
      batch.targets.push_back(bytes[i + 1]);
    }
  }
  return batch;
}

std::int64_t ByteSamples::held_out_windows() const {
  return (text_->size() - training_size_ - 1 + sequence_ - 1) / sequence_;
}

HostBatch ByteSamples::held_out(std::int64_t first, std::int64_t rows) const {
  HostBatch batch = empty_batch(rows, sequence_);
  const auto bytes = text_->bytes();
  for (std::int64_t row = first; row < first + rows; ++row) {
    for (std::int64_t i = 0; i < sequence_; ++i) {
      const std::int64_t at = training_size_ + row * sequence_ + i;
      const bool is_inside = at + 1 < text_->size();
      batch.tokens.push_back(is_inside ? bytes[static_cast<std::size_t>(at)] : 0);
      batch.targets.push_back(is_inside ? bytes[static_cast<std::size_t>(at + 1)] : -1);
    }
  }
  return batch;
}

}  // namespace tessera::data

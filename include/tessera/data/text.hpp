// SPDX-License-Identifier: Apache-2.0
// Text as bytes, and samples of it. Sample k of a run is a pure function of (seed, k), whatever the
// layout: the window of sequence + 1 bytes that begins at byte floor(u n) of the training part,
// with n the number of places where a window fits and u in [0, 1) the Philox number k of the key
// "samples" of the seed. Windows are drawn with replacement; there are no epochs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/context.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::data {

inline constexpr std::int64_t kByteVocabulary = 256;

/// The byte tokenizer: token i of a text is its byte i, 0 to 255.
std::vector<std::int32_t> encode_bytes(std::string_view text);
/// The inverse; kInvalidArgument error for a token outside 0 to 255.
std::string decode_bytes(std::span<const std::int32_t> tokens);

/// A file mapped into memory; every byte is a token.
class ByteText {
 public:
  /// kConfig error when it is no regular file, cannot be opened, or is empty.
  explicit ByteText(const std::filesystem::path& path);
  ~ByteText();
  ByteText(const ByteText&) = delete;
  ByteText& operator=(const ByteText&) = delete;

  std::int64_t size() const { return size_; }
  /// Error{kIo} when the file has become shorter.
  std::span<const std::uint8_t> bytes() const;
  /// FNV-1a of the size and 65,536 bytes spread evenly: tells texts apart, not forgeries.
  std::uint64_t digest() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  const std::uint8_t* data_ = nullptr;
  std::int64_t size_ = 0;
};

/// Rows of tokens and the tokens that follow them, [rows, sequence] i32.
struct Batch {
  Tensor tokens;
  Tensor targets;
};

/// The same in plain memory: what another thread may make.
struct HostBatch {
  std::int64_t rows = 0;
  std::int64_t sequence = 0;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

/// Copies to tensors of the context.
Batch to_batch(Context& context, const HostBatch& batch);

/// Windows of one text. The last `held_out` part of it is kept for evaluation. Its const functions
/// may be called by several threads.
class ByteSamples {
 public:
  /// kConfig error that names the numbers when a part is shorter than sequence + 1 bytes.
  ByteSamples(std::shared_ptr<const ByteText> text, std::int64_t sequence, std::uint64_t seed,
              double held_out = 0.05);

  /// Training samples first, first + 1, ..., first + rows - 1 of the run.
  HostBatch training(std::int64_t first, std::int64_t rows) const;
  /// Windows first, ... of the held-out part, which is cut into consecutive windows; beyond the
  /// last byte targets are ignored (-1).
  HostBatch held_out(std::int64_t first, std::int64_t rows) const;
  /// How many windows the held-out part has.
  std::int64_t held_out_windows() const;
  /// Bytes of the training part.
  std::int64_t training_size() const { return training_size_; }
  /// How many different training samples there are.
  std::int64_t training_windows() const { return training_size_ - sequence_; }

 private:
  std::int64_t training_offset(std::int64_t sample) const;

  std::shared_ptr<const ByteText> text_;
  std::int64_t sequence_;
  RandomKey key_;
  std::int64_t training_size_;
};

}  // namespace tessera::data

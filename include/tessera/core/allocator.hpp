// SPDX-License-Identifier: Apache-2.0
// The caching allocator: all tensor memory comes from here, is 64-byte aligned, and is reused in
// program order. Freed blocks are kept by exact rounded size; a request takes the smallest cached
// block that wastes at most 1/8 of itself. What is held beyond the bytes in use stays within 1/8 of
// their peak, or 16 MiB.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "tessera/core/memory.hpp"

namespace tessera {

class Allocator {
 public:
  /// `limit_bytes` bounds the bytes in use and cached together (0: only the machine does).
  explicit Allocator(MemoryTracker& tracker, std::size_t limit_bytes = 0);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  static constexpr std::size_t kAlignment = 64;

  struct Block {
    void* data = nullptr;
    std::size_t capacity = 0;  ///< bytes that the block really has
    std::size_t charged = 0;   ///< bytes in the tracker's books: the request, rounded up to 64
    MemoryCategory category = MemoryCategory::kActivation;
  };

  /// Uninitialised memory. Zero bytes give a null block. Throws kOutOfMemory that says what asked,
  /// what holds the memory, and what would help.
  Block allocate(std::size_t bytes, MemoryCategory category);
  /// Returns a block to the cache. Thread-safe.
  void release(const Block& block) noexcept;
  /// Gives cached blocks back to the system.
  void trim() noexcept;
  /// Bytes held in the cache, not in use.
  std::size_t cached_bytes() const;

 private:
  /// Frees cached blocks, the largest first, until at most `bytes` are left.
  void shrink_cache(std::size_t bytes) noexcept;
  [[noreturn]] void throw_out_of_memory(std::size_t bytes, MemoryCategory category) const;

  MemoryTracker& tracker_;
  std::size_t limit_bytes_;
  mutable std::mutex mutex_;
  std::multimap<std::size_t, void*> cache_;
  std::size_t cached_bytes_ = 0;
};

}  // namespace tessera

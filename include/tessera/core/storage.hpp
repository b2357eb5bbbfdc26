// SPDX-License-Identifier: Apache-2.0
// Reference-counted memory that tensors view. It keeps its Context (and so the allocator) alive,
// and counts its in-place changes, so that a saved tensor knows when it went stale.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "tessera/core/allocator.hpp"
#include "tessera/core/device.hpp"

namespace tessera {

class Context;

class Storage {
 public:
  /// Allocates from the context's allocator.
  Storage(std::shared_ptr<Context> context, std::size_t bytes, MemoryCategory category);
  /// Wraps memory that somebody else owns (a shared segment, a mapped file); `release` is called at
  /// the end. The bytes are charged to `category` while the storage lives.
  Storage(std::shared_ptr<Context> context, void* data, std::size_t bytes, MemoryCategory category,
          std::function<void()> release);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return block_.data; }
  std::size_t bytes() const { return bytes_; }
  MemoryCategory category() const { return block_.category; }
  const std::shared_ptr<Context>& context() const { return context_; }

  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::shared_ptr<Context> context_;
  std::size_t bytes_;
  Allocator::Block block_;
  std::function<void()> release_;
  bool is_external_ = false;
  std::atomic<std::uint64_t> version_{0};
};

}  // namespace tessera

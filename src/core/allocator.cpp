// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/allocator.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>

#include "tessera/core/error.hpp"

namespace tessera {
namespace {

/// Blocks from here on come from the system one by one and go back whole; malloc would keep parts
/// of its heap that it cannot return.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kMapped = std::numeric_limits<std::size_t>::max();  // malloc sees overruns
#else
constexpr std::size_t kMapped = std::size_t{256} << 10;
#endif
constexpr std::size_t kSlack = std::size_t{16} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

void* system_allocate(std::size_t size) noexcept {
  if (size < kMapped) return std::aligned_alloc(Allocator::kAlignment, size);
  void* const data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  if (size >= kHugePage) madvise(data, size, MADV_HUGEPAGE);  // fewer misses; only advice
  return data;
}

void system_free(void* data, std::size_t size) noexcept {
  if (size < kMapped) {
    std::free(data);
  } else {
    munmap(data, size);
  }
}

}  // namespace

Allocator::Allocator(MemoryTracker& tracker, std::size_t limit_bytes)
    : tracker_(tracker), limit_bytes_(limit_bytes) {}

Allocator::~Allocator() { trim(); }

Allocator::Block Allocator::allocate(std::size_t bytes, MemoryCategory category) {
  if (bytes == 0) return Block{nullptr, 0, 0, category};
  if (bytes > static_cast<std::size_t>(-1) - kAlignment) throw_out_of_memory(bytes, category);
  const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  // One lock over check and charge: two threads cannot both take the last bytes below the limit.
  std::unique_lock lock(mutex_);
  if (limit_bytes_ != 0 &&
      (size > limit_bytes_ || tracker_.current_total() > limit_bytes_ - size)) {
    throw_out_of_memory(bytes, category);
  }
  Block block{nullptr, size, size, category};
  const auto found = cache_.lower_bound(size);
  if (found != cache_.end() && found->first - size <= found->first / 8) {
    block.data = found->second;
    block.capacity = found->first;
    cached_bytes_ -= found->first;
    cache_.erase(found);
  }
  if (block.data == nullptr) {
    // What is held from the system stays near the most that was in use, so that the books' peak is
    // the process's. Without the slack, blocks of other sizes would be mapped anew in every step.
    const std::size_t in_use = tracker_.current_total() + size;
    const std::size_t peak = tracker_.peak_total();
    const std::size_t most = std::max(peak + std::max(peak / 8, kSlack), in_use);
    shrink_cache((limit_bytes_ == 0 ? most : std::min(most, limit_bytes_)) - in_use);
    block.data = system_allocate(size);
  }
  if (block.data == nullptr) {
    lock.unlock();
    trim();
    lock.lock();
    block.data = system_allocate(size);
  }
  if (block.data == nullptr) throw_out_of_memory(bytes, category);
  tracker_.add(category, block.charged);
  return block;
}

void Allocator::release(const Block& block) noexcept {
  if (block.data == nullptr) return;
  tracker_.remove(block.category, block.charged);
  const std::lock_guard lock(mutex_);
  try {
    cache_.emplace(block.capacity, block.data);
    cached_bytes_ += block.capacity;
  } catch (...) {
    system_free(block.data, block.capacity);
  }
}

void Allocator::shrink_cache(std::size_t bytes) noexcept {
  while (cached_bytes_ > bytes) {
    const auto largest = std::prev(cache_.end());
    system_free(largest->second, largest->first);
    cached_bytes_ -= largest->first;
    cache_.erase(largest);
  }
}

void Allocator::trim() noexcept {
  const std::lock_guard lock(mutex_);
  shrink_cache(0);
}

std::size_t Allocator::cached_bytes() const {
  const std::lock_guard lock(mutex_);
  return cached_bytes_;
}

void Allocator::throw_out_of_memory(std::size_t bytes, MemoryCategory category) const {
  const std::string limit = limit_bytes_ == 0
                                ? "the machine has no more memory"
                                : fmt::format("the limit is {}", format_bytes(limit_bytes_));
  throw Error(
      ErrorCode::kOutOfMemory,
      fmt::format("out of memory: {} asked for {}, {} in use, and {}. Held by:\n{}\n"
                  "Smaller micro-batches with more accumulation, recomputation, or sharding "
                  "the optimizer state over more ranks would help.",
                  to_string(category), format_bytes(bytes), format_bytes(tracker_.current_total()),
                  limit, tracker_.report()));
}

}  // namespace tessera

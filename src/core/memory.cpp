// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/memory.hpp"

#include <fmt/format.h>

namespace tessera {
namespace {

void raise_to(std::atomic<std::size_t>& peak, std::size_t value) {
  std::size_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

const char* to_string(MemoryCategory category) {
  constexpr const char* names[kMemoryCategoryCount] = {"parameter",  "gradient",  "optimizer",
                                                       "activation", "workspace", "communication",
                                                       "kv-cache",   "offload"};
  return names[static_cast<std::size_t>(category)];
}

void MemoryTracker::add(MemoryCategory category, std::size_t bytes) {
  Book& book = books_[static_cast<std::size_t>(category)];
  raise_to(book.peak, book.current.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  raise_to(total_.peak, total_.current.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

void MemoryTracker::remove(MemoryCategory category, std::size_t bytes) {
  books_[static_cast<std::size_t>(category)].current.fetch_sub(bytes, std::memory_order_relaxed);
  total_.current.fetch_sub(bytes, std::memory_order_relaxed);
}

std::size_t MemoryTracker::current(MemoryCategory category) const {
  return books_[static_cast<std::size_t>(category)].current.load(std::memory_order_relaxed);
}

std::size_t MemoryTracker::peak(MemoryCategory category) const {
  return books_[static_cast<std::size_t>(category)].peak.load(std::memory_order_relaxed);
}

std::size_t MemoryTracker::current_total() const {
  return total_.current.load(std::memory_order_relaxed);
}

std::size_t MemoryTracker::peak_total() const {
  return total_.peak.load(std::memory_order_relaxed);
}

void MemoryTracker::reset_peak() {
  for (Book& book : books_) book.peak.store(book.current.load());
  total_.peak.store(total_.current.load());
}

std::string MemoryTracker::report() const {
  std::string out;
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (peak(category) == 0) continue;
    out += fmt::format("{}{} {} (peak {})", out.empty() ? "" : "\n", to_string(category),
                       format_bytes(current(category)), format_bytes(peak(category)));
  }
  return out;
}

std::string format_bytes(std::size_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024.0 && unit < 4; ++unit) value /= 1024.0;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace tessera

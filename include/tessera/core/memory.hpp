// SPDX-License-Identifier: Apache-2.0
// What memory is for, and the per-category books of it: current and peak bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera {

enum class MemoryCategory : std::uint8_t {
  kParameter,
  kGradient,
  kOptimizer,
  kActivation,
  kWorkspace,
  kCommunication,
  kKvCache,
  kOffload,
};

inline constexpr int kMemoryCategoryCount = 8;

/// "parameter", "gradient", ... as in metrics.
const char* to_string(MemoryCategory category);

/// Bytes in use and their high-water marks. Thread-safe.
class MemoryTracker {
 public:
  void add(MemoryCategory category, std::size_t bytes);
  void remove(MemoryCategory category, std::size_t bytes);

  std::size_t current(MemoryCategory category) const;
  std::size_t peak(MemoryCategory category) const;
  /// Sum over the categories in use at this moment.
  std::size_t current_total() const;
  /// Largest sum at any moment (not the sum of the peaks).
  std::size_t peak_total() const;
  /// Sets every peak to the current value.
  void reset_peak();
  /// One line per category in use: "activation 12.0 MiB (peak 40.0 MiB)".
  std::string report() const;

 private:
  struct Book {
    std::atomic<std::size_t> current{0};
    std::atomic<std::size_t> peak{0};
  };
  std::array<Book, kMemoryCategoryCount> books_;
  Book total_;
};

/// "12.0 MiB".
std::string format_bytes(std::size_t bytes);

}  // namespace tessera

// SPDX-License-Identifier: Apache-2.0
// Scoped profiler with Chrome-trace output (open it in Perfetto or chrome://tracing). Off by
// default; a range costs one branch then.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Lanes of a rank's trace.
enum class ProfileLane : int { kMain = 0, kCommunication = 1, kData = 2 };

class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  struct Event {
    std::string name;
    const char* category;  ///< a string literal: "op", "comm", "step", ...
    ProfileLane lane;
    Clock::time_point begin;
    Clock::time_point end;
  };

  bool is_enabled() const { return is_enabled_.load(std::memory_order_relaxed); }
  void set_enabled(bool on) { is_enabled_.store(on, std::memory_order_relaxed); }
  /// Thread-safe.
  void record(Event event);
  std::vector<Event> events() const;
  void clear();
  /// Chrome trace JSON: process `rank`, one thread per lane, times in microseconds since `origin`.
  std::string chrome_trace(int rank, Clock::time_point origin) const;

 private:
  std::atomic<bool> is_enabled_{false};
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

/// Records the time between its construction and destruction.
class ProfileScope {
 public:
  ProfileScope(Profiler& profiler, std::string_view name, const char* category,
               ProfileLane lane = ProfileLane::kMain);
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profiler* profiler_ = nullptr;
  std::string name_;
  const char* category_;
  ProfileLane lane_;
  Profiler::Clock::time_point begin_;
};

}  // namespace tessera

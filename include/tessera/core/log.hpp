// SPDX-License-Identifier: Apache-2.0
// Rank-aware log lines. The sink (standard error) is the only global of the library.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

class Logger {
 public:
  /// Lines are prefixed with the rank when `world_size` > 1.
  Logger(int rank, int world_size, LogLevel level);
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  bool is_enabled(LogLevel level) const { return level >= level_; }
  void set_level(LogLevel level) { level_ = level; }
  void write(LogLevel level, std::string_view message);

  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    if (is_enabled(LogLevel::kInfo))
      write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    if (is_enabled(LogLevel::kWarn))
      write(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) {
    if (is_enabled(LogLevel::kDebug))
      write(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    if (is_enabled(LogLevel::kError))
      write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct Sink;
  std::unique_ptr<Sink> sink_;
  std::string prefix_;
  LogLevel level_;
};

}  // namespace tessera

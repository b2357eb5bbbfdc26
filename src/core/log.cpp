// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tessera {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

/// One sink for all loggers of the process, so that lines of rank threads do not mix.
const std::shared_ptr<spdlog::sinks::sink>& shared_sink() {
  static const std::shared_ptr<spdlog::sinks::sink> sink =
      std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  return sink;
}

}  // namespace

struct Logger::Sink {
  spdlog::logger logger;
  explicit Sink(const std::string& name) : logger(name, shared_sink()) {}
};

Logger::Logger(int rank, int world_size, LogLevel level)
    : sink_(std::make_unique<Sink>("tessera")),
      prefix_(world_size > 1 ? fmt::format("[rank {}/{}] ", rank, world_size) : ""),
      level_(level) {
  sink_->logger.set_level(spdlog::level::trace);
}

Logger::~Logger() = default;

void Logger::write(LogLevel level, std::string_view message) {
  sink_->logger.log(to_spdlog(level), "{}{}", prefix_, message);
}

}  // namespace tessera

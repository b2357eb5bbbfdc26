// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/profile.hpp"

#include <fmt/format.h>

namespace tessera {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out;
}

double microseconds(Profiler::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

}  // namespace

void Profiler::record(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

std::vector<Profiler::Event> Profiler::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void Profiler::clear() {
  const std::lock_guard lock(mutex_);
  events_.clear();
}

std::string Profiler::chrome_trace(int rank, Clock::time_point origin) const {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  out += fmt::format(
      "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{0},\"args\":{{\"name\":\"rank {0}\"}}}}",
      rank);
  constexpr const char* lanes[] = {"main", "communication", "data"};
  for (int lane = 0; lane < 3; ++lane) {
    out += fmt::format(
        ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}"
        "\"}}}}",
        rank, lane, lanes[lane]);
  }
  for (const Event& event : events()) {
    out += fmt::format(
        ",\n{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"ts\":{:.3f},\"dur\":{:.3f},\"pid\":{},"
        "\"tid\":{}}}",
        escaped(event.name), event.category, microseconds(event.begin - origin),
        microseconds(event.end - event.begin), rank, static_cast<int>(event.lane));
  }
  return out + "]}\n";
}

ProfileScope::ProfileScope(Profiler& profiler, std::string_view name, const char* category,
                           ProfileLane lane)
    : category_(category), lane_(lane) {
  if (!profiler.is_enabled()) return;
  profiler_ = &profiler;
  name_ = name;
  begin_ = Profiler::Clock::now();
}

ProfileScope::~ProfileScope() {
  if (profiler_ == nullptr) return;
  try {
    profiler_->record({std::move(name_), category_, lane_, begin_, Profiler::Clock::now()});
  } catch (...) {  // a lost event must not end the program
  }
}

}  // namespace tessera

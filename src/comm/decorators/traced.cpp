// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "decorator.hpp"
#include "tessera/comm/decorators.hpp"
#include "tessera/core/memory.hpp"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

class TracedWork final : public WorkState {
 public:
  TracedWork(Work inner, Profiler& profiler, std::string name, Clock::time_point begin)
      : inner_(std::move(inner)), profiler_(profiler), name_(std::move(name)), begin_(begin) {
    if (inner_.done()) record();
  }

  bool done() override {
    if (!inner_.done()) return false;
    record();
    return true;
  }
  void wait(Clock::time_point deadline) override {
    if (inner_.state() != nullptr) inner_.state()->wait(deadline);
    record();
  }
  std::optional<Clock::time_point> finished_at() const override {
    return inner_.state() == nullptr ? begin_ : inner_.state()->finished_at();
  }

 private:
  void record() {
    if (is_recorded_) return;
    is_recorded_ = true;
    const auto end = inner_.state() == nullptr ? std::nullopt : inner_.state()->finished_at();
    profiler_.record(
        {name_, "comm", ProfileLane::kCommunication, begin_, end.value_or(Clock::now())});
  }

  Work inner_;
  Profiler& profiler_;
  std::string name_;
  Clock::time_point begin_;
  bool is_recorded_ = false;
};

class Traced final : public Decorator {
 public:
  Traced(std::shared_ptr<Communicator> inner, Profiler& profiler)
      : Decorator(std::move(inner)), profiler_(profiler) {}

 protected:
  Work around(const Call& call, const std::function<Work()>& start) override {
    if (!profiler_.is_enabled()) return start();
    const auto begin = Clock::now();
    std::string name = call.operation;
    if (!label().empty()) name += " " + label();
    if (call.bytes > 0) name += " " + format_bytes(call.bytes);
    return Work(std::make_shared<TracedWork>(start(), profiler_, std::move(name), begin),
                timeout());
  }
  std::shared_ptr<Communicator> wrap(std::shared_ptr<Communicator> part) override {
    return traced(std::move(part), profiler_);
  }

 private:
  Profiler& profiler_;
};

}  // namespace

std::shared_ptr<Communicator> traced(std::shared_ptr<Communicator> inner, Profiler& profiler) {
  return std::make_shared<Traced>(std::move(inner), profiler);
}

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <thread>

#include "decorator.hpp"
#include "tessera/comm/decorators.hpp"
#include "tessera/core/random.hpp"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// Finished not before a point in time.
class DelayedWork final : public WorkState {
 public:
  DelayedWork(Work inner, Clock::time_point earliest)
      : inner_(std::move(inner)), earliest_(earliest) {}

  bool done() override { return inner_.done() && Clock::now() >= earliest_; }
  void wait(Clock::time_point deadline) override {
    if (inner_.state() != nullptr) inner_.state()->wait(deadline);
    std::this_thread::sleep_until(std::min(earliest_, deadline));
  }

 private:
  Work inner_;
  Clock::time_point earliest_;
};

class Delayed final : public Decorator {
 public:
  Delayed(std::shared_ptr<Communicator> inner, const DelayOptions& options)
      : Decorator(std::move(inner)), options_(options) {}

 protected:
  Work around(const Call&, const std::function<Work()>& start) override {
    std::this_thread::sleep_for(next());
    Work work = start();
    return Work(std::make_shared<DelayedWork>(std::move(work), Clock::now() + next()), timeout());
  }
  std::shared_ptr<Communicator> wrap(std::shared_ptr<Communicator> part) override {
    DelayOptions options = options_;
    options.seed = options_.seed * 31 + 1 + calls_;
    return delayed(std::move(part), options);
  }

 private:
  /// Zero half of the time.
  std::chrono::microseconds next() {
    const double u = random_uniform(RandomKey{options_.seed}, calls_++);
    const double share = std::max(0.0, 2.0 * u - 1.0);
    return std::chrono::microseconds(
        static_cast<std::int64_t>(share * static_cast<double>(options_.longest.count())));
  }

  DelayOptions options_;
  std::uint64_t calls_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> delayed(std::shared_ptr<Communicator> inner,
                                      const DelayOptions& options) {
  return std::make_shared<Delayed>(std::move(inner), options);
}

}  // namespace tessera::comm

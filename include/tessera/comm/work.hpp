// SPDX-License-Identifier: Apache-2.0
// The handle of an asynchronous operation of a communicator.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace tessera::comm {

/// Shared state of one operation. A backend (or decorator) derives from it; it holds the tensors of
/// the operation until it is done.
class WorkState {
 public:
  virtual ~WorkState() = default;
  /// True when finished, successfully or not. Never blocks; may make progress.
  virtual bool done() = 0;
  /// Returns when finished; rethrows the operation's error. Throws Error{kTimeout} (and poisons the
  /// communicator) when `deadline` passes first.
  virtual void wait(std::chrono::steady_clock::time_point deadline) = 0;
  /// When it finished, where the backend notes that.
  virtual std::optional<std::chrono::steady_clock::time_point> finished_at() const { return {}; }
};

class Work {
 public:
  /// Finished work.
  Work() = default;
  Work(std::shared_ptr<WorkState> state, std::chrono::milliseconds timeout)
      : state_(std::move(state)), timeout_(timeout) {}

  bool done() const { return state_ == nullptr || state_->done(); }
  /// Waits at most the communicator's timeout; rethrows the operation's error. Idempotent.
  void wait() const {
    if (state_ != nullptr) state_->wait(std::chrono::steady_clock::now() + timeout_);
  }
  /// For decorators, that wrap one state in another.
  const std::shared_ptr<WorkState>& state() const { return state_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  std::shared_ptr<WorkState> state_;
  std::chrono::milliseconds timeout_{0};
};

}  // namespace tessera::comm

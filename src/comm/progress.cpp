// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tessera/core/error.hpp"

namespace tessera::comm {

using Clock = std::chrono::steady_clock;

void PoisonPage::poison(std::string_view why) {
  int sound = 0;
  if (!state.compare_exchange_strong(sound, 1, std::memory_order_acq_rel)) return;
  const std::size_t length = std::min(why.size(), sizeof(reason) - 1);
  std::memcpy(reason, why.data(), length);
  reason[length] = 0;
  state.store(2, std::memory_order_release);
}

bool Operation::done() {
  if (status_.load(std::memory_order_acquire) != kPending) return true;
  engine_.try_round();
  return status_.load(std::memory_order_acquire) != kPending;
}

void Operation::wait(Clock::time_point deadline) {
  const auto begin = Clock::now();
  engine_.helpers_.fetch_add(1);
  int idle = 0;
  while (status_.load(std::memory_order_acquire) == kPending) {
    if (engine_.try_round()) {
      idle = 0;
      continue;
    }
    // Spin shortly, then leave the core to whoever we wait for.
    if (++idle > 50) std::this_thread::yield();
    if (idle > 2000) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (idle % 64 == 0 && Clock::now() > deadline) {
      engine_.helpers_.fetch_sub(1);
      engine_.expire(*this, Clock::now() - begin);
    }
  }
  engine_.helpers_.fetch_sub(1);
  if (status_.load(std::memory_order_acquire) == kFailed) std::rethrow_exception(error_);
}

std::optional<Clock::time_point> Operation::finished_at() const {
  if (status_.load(std::memory_order_acquire) == kPending) return {};
  return finished_at_;
}

Engine::Engine(std::shared_ptr<PoisonPage> poison, int rank)
    : poison_(std::move(poison)), rank_(rank), thread_([this] { run(); }) {}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

Engine::Queue Engine::add_queue() {
  const std::lock_guard lock(mutex_);
  return queues_.emplace(queues_.end());
}

void Engine::remove_queue(Queue queue) {
  const std::lock_guard lock(mutex_);
  for (const auto& operation : queue->operations) {
    finish(*operation,
           std::make_exception_ptr(
               Error(ErrorCode::kInvalidArgument,
                     fmt::format("{}: its communicator was destroyed before it was finished",
                                 operation->what_))
                   .with_rank(rank_)));
  }
  queues_.erase(queue);
}

void Engine::set_priority(Queue queue, int priority) {
  const std::lock_guard lock(mutex_);
  queue->priority = priority;
  queues_.sort([](const Line& a, const Line& b) { return a.priority < b.priority; });
}

void Engine::start(Queue queue, std::shared_ptr<Operation> operation) {
  check();
  {
    const std::lock_guard lock(mutex_);
    queue->operations.push_back(std::move(operation));
    pending_.fetch_add(1);
  }
  wake_.notify_one();
}

void Engine::start_unordered(std::shared_ptr<Operation> operation) {
  check();
  {
    const std::lock_guard lock(mutex_);
    unordered_.push_back(std::move(operation));
    pending_.fetch_add(1);
  }
  wake_.notify_one();
}

void Engine::check() const {
  if (poison_->is_poisoned()) {
    throw Error(ErrorCode::kPeerFailed,
                fmt::format("the communicator is closed after a failure: {}", poison_->reason))
        .with_rank(rank_);
  }
}

void Engine::expire(const Operation& operation, std::chrono::duration<double> waited) {
  std::string message;
  {
    const std::lock_guard lock(mutex_);
    message = fmt::format("{} was not finished after {:.1f} s{}", operation.what_, waited.count(),
                          operation.waiting_for());
  }
  poison_->poison(fmt::format("rank {}: {}", rank_, message));
  throw Error(ErrorCode::kTimeout, message).with_rank(rank_);
}

void Engine::finish(Operation& operation, std::exception_ptr error) {
  operation.release();
  operation.error_ = std::move(error);
  operation.finished_at_ = Clock::now();
  operation.status_.store(operation.error_ == nullptr ? Operation::kDone : Operation::kFailed,
                          std::memory_order_release);
  pending_.fetch_sub(1);
}

/// True when the operation is over; `any` becomes true when something was done.
bool Engine::step(Operation& operation, bool& any) {
  std::exception_ptr error;
  std::string cause;
  try {
    check();
    operation.has_progressed_ = false;
    if (!operation.advance()) {
      any = any || operation.has_progressed_;
      return false;
    }
  } catch (const Error& thrown) {
    error = std::make_exception_ptr(thrown.with_rank(rank_));
    cause = thrown.message();
  } catch (const std::exception& thrown) {
    error = std::make_exception_ptr(Error(ErrorCode::kInternal, thrown.what()).with_rank(rank_));
    cause = thrown.what();
  }
  if (error != nullptr)
    poison_->poison(fmt::format("rank {}: {}: {}", rank_, operation.what_, cause));
  finish(operation, std::move(error));
  any = true;
  return true;
}

bool Engine::round() {
  is_in_round_ = true;
  bool any = false;
  for (auto it = unordered_.begin(); it != unordered_.end();) {
    it = step(**it, any) ? unordered_.erase(it) : std::next(it);
  }
  int urgent = 0;  // when queues of this priority got something done, less urgent ones wait
  bool is_busy = false;
  for (Line& line : queues_) {
    if (line.operations.empty()) continue;
    if (is_busy && line.priority > urgent) break;
    bool did = false;
    if (step(*line.operations.front(), did)) line.operations.pop_front();
    is_busy = is_busy || did;
    urgent = line.priority;
    any = any || did;
  }
  is_in_round_ = false;
  return any;
}

bool Engine::try_round() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && !is_in_round_ && round();
}

void Engine::run() {
  int idle = 0;
  std::unique_lock lock(mutex_);
  while (!stops_) {
    if (pending_.load() == 0) {
      idle = 0;
      wake_.wait(lock, [this] { return stops_ || pending_.load() > 0; });
      continue;
    }
    const bool is_helped = helpers_.load() > 0;
    if (!is_helped && round()) {
      idle = 0;
      continue;
    }
    lock.unlock();
    // Waiting for a peer must not take a core from computation.
    idle = std::min(idle + 1, 10);
    std::this_thread::sleep_for(std::chrono::microseconds(is_helped ? 200 : 10 * idle));
    lock.lock();
  }
}

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <fmt/format.h>

#include <cstring>

#include "tessera/core/error.hpp"

namespace tessera::comm {

using Clock = std::chrono::steady_clock;

bool PoisonPage::poison(std::string_view why) {
  int sound = 0;
  if (!state.compare_exchange_strong(sound, 1, std::memory_order_acq_rel)) return false;
  const std::size_t length = std::min(why.size(), sizeof(reason) - 1);
  std::memcpy(reason, why.data(), length);
  reason[length] = 0;
  state.store(2, std::memory_order_release);
  return true;
}

bool Operation::done() {
  if (status_.load(std::memory_order_acquire) != kPending) return true;
  engine_.try_round();
  return status_.load(std::memory_order_acquire) != kPending;
}

void Operation::wait(Clock::time_point deadline) {
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
      const std::string message =
          fmt::format("rank {}: {} passed its deadline{}", engine_.rank(), what_, waiting_for());
      engine_.poison()->poison(message);
      throw Error(ErrorCode::kTimeout, message).with_rank(engine_.rank());
    }
  }
  engine_.helpers_.fetch_sub(1);
  if (status_.load(std::memory_order_acquire) == kFailed) std::rethrow_exception(error_);
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
  pending_.fetch_sub(static_cast<int>(queue->size()));
  queues_.erase(queue);
}

void Engine::start(Queue queue, std::shared_ptr<Operation> operation) {
  check();
  {
    const std::lock_guard lock(mutex_);
    queue->push_back(std::move(operation));
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

/// True when the operation is over; `any` becomes true when something was done.
bool Engine::step(Operation& operation, bool& any) {
  try {
    check();
    operation.has_progressed_ = false;
    if (!operation.advance()) {
      any = any || operation.has_progressed_;
      return false;
    }
    operation.release();
    operation.status_.store(Operation::kDone, std::memory_order_release);
  } catch (const Error& error) {
    poison_->poison(fmt::format("rank {}: {}: {}", rank_, operation.what_, error.message()));
    operation.error_ = std::current_exception();
    operation.release();
    operation.status_.store(Operation::kFailed, std::memory_order_release);
  }
  pending_.fetch_sub(1);
  any = true;
  return true;
}

bool Engine::round() {
  bool any = false;
  for (auto it = unordered_.begin(); it != unordered_.end();) {
    it = step(**it, any) ? unordered_.erase(it) : std::next(it);
  }
  for (auto& queue : queues_) {
    if (!queue.empty() && step(*queue.front(), any)) queue.pop_front();
  }
  return any;
}

bool Engine::try_round() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && round();
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

// SPDX-License-Identifier: Apache-2.0
// The progress engine of a rank: operations are state machines that never block; one loop thread
// advances them, and a waiting caller helps. Collectives of one communicator run one after the
// other in the order of their calls; point-to-point operations all run at once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tessera/comm/work.hpp"

namespace tessera::comm {

/// What a failure anywhere in a world leaves behind. The memory may be shared between processes.
struct PoisonPage {
  std::atomic<int> state{0};  ///< 0 sound, 1 being written, 2 poisoned
  char reason[500] = {};

  bool poison(std::string_view why);
  bool is_poisoned() const { return state.load(std::memory_order_acquire) == 2; }
};

class Engine;

class Operation : public WorkState, public std::enable_shared_from_this<Operation> {
 public:
  Operation(Engine& engine, std::string what) : engine_(engine), what_(std::move(what)) {}

  bool done() final;
  void wait(std::chrono::steady_clock::time_point deadline) final;

  /// Does what can be done now; true when finished. Called with the engine's lock held; throws to
  /// fail.
  virtual bool advance() = 0;
  /// Lets go of the tensors, before anybody can see that the operation is over: so memory is released in
  /// program order, by the caller.
  virtual void release() = 0;
  /// Whom the operation waits for, for messages.
  virtual std::string waiting_for() const { return ""; }

 protected:
  /// To be called by advance() when it did a part and wants to go on soon.
  void note_progress() { has_progressed_ = true; }

 private:
  friend class Engine;
  enum Status { kPending, kDone, kFailed };

  Engine& engine_;
  std::string what_;
  bool has_progressed_ = false;
  std::atomic<int> status_{kPending};
  std::exception_ptr error_;
};

class Engine {
 public:
  Engine(std::shared_ptr<PoisonPage> poison, int rank);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// A queue of one communicator.
  using Queue = std::list<std::deque<std::shared_ptr<Operation>>>::iterator;
  Queue add_queue();
  void remove_queue(Queue queue);

  void start(Queue queue, std::shared_ptr<Operation> operation);
  void start_unordered(std::shared_ptr<Operation> operation);

  const std::shared_ptr<PoisonPage>& poison() const { return poison_; }
  /// Throws Error{kPeerFailed} when the world is poisoned.
  void check() const;
  int rank() const { return rank_; }
  /// One round over all operations, unless another thread is at it. True when something finished.
  bool try_round();

 private:
  void run();
  bool round();
  bool step(Operation& operation, bool& any);

  std::shared_ptr<PoisonPage> poison_;
  int rank_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<std::deque<std::shared_ptr<Operation>>> queues_;
  std::list<std::shared_ptr<Operation>> unordered_;
  std::atomic<int> pending_{0};
  std::atomic<int> helpers_{0};
  bool stops_ = false;
  std::thread thread_;

  friend class Operation;
};

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
// The progress engine of a rank: operations are state machines that never block; one loop thread
// advances them, and a waiting caller helps. Collectives of one communicator run one after the
// other in the order of their calls; point-to-point operations all run at once. Queues take turns,
// the more urgent priority first.
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
  std::atomic<int> state{0};     ///< 0 sound, 1 being written, 2 poisoned
  std::atomic<int> reported{0};  ///< 1 when a rank has taken it upon itself to report the cause
  char reason[500] = {};

  /// Keeps the first cause.
  void poison(std::string_view why);
  /// True for the first caller only.
  bool claim_report() { return reported.exchange(1, std::memory_order_acq_rel) == 0; }
  bool is_poisoned() const { return state.load(std::memory_order_acquire) == 2; }
};

class Engine;

class Operation : public WorkState, public std::enable_shared_from_this<Operation> {
 public:
  Operation(Engine& engine, std::string what) : engine_(engine), what_(std::move(what)) {}

  bool done() final;
  void wait(std::chrono::steady_clock::time_point deadline) final;
  std::optional<std::chrono::steady_clock::time_point> finished_at() const final;

  /// Does what can be done now; true when finished. Called with the engine's lock held; throws to
  /// fail.
  virtual bool advance() = 0;
  /// Lets go of the tensors, before anybody can see that the operation is over: so memory is
  /// released in program order, by the caller.
  virtual void release() = 0;
  /// Whom the operation waits for, for messages. Called with the engine's lock held.
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
  std::chrono::steady_clock::time_point finished_at_;
};

class Engine {
 public:
  Engine(std::shared_ptr<PoisonPage> poison, int rank);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The collectives of one communicator.
  struct Line {
    int priority = 0;
    std::deque<std::shared_ptr<Operation>> operations;
  };
  using Queue = std::list<Line>::iterator;
  Queue add_queue();
  /// Operations left in the queue fail.
  void remove_queue(Queue queue);
  /// Lower is more urgent.
  void set_priority(Queue queue, int priority);

  void start(Queue queue, std::shared_ptr<Operation> operation);
  /// May be called by an operation that is being advanced.
  void start_unordered(std::shared_ptr<Operation> operation);

  const std::shared_ptr<PoisonPage>& poison() const { return poison_; }
  /// Throws Error{kPeerFailed} when the world is poisoned.
  void check() const;
  int rank() const { return rank_; }
  /// One round over all operations, unless another thread (or this one) is at it. True when
  /// something was done.
  bool try_round();

 private:
  friend class Operation;
  void run();
  bool round();
  bool step(Operation& operation, bool& any);
  void finish(Operation& operation, std::exception_ptr error);
  [[noreturn]] void expire(const Operation& operation, std::chrono::duration<double> waited);

  std::shared_ptr<PoisonPage> poison_;
  int rank_;
  std::recursive_mutex mutex_;  ///< recursive: composed operations start and ask others
  std::condition_variable_any wake_;
  std::list<Line> queues_;  ///< in order of priority
  std::list<std::shared_ptr<Operation>> unordered_;
  bool is_in_round_ = false;
  std::atomic<int> pending_{0};
  std::atomic<int> helpers_{0};
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace tessera::comm

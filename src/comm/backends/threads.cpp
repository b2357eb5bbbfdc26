// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: the vehicle of the tests.
#include <fmt/format.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <exception>
#include <mutex>
#include <thread>

#include "tessera/comm/backends.hpp"
#include "thread_group.hpp"

namespace tessera::comm {

namespace backends {

std::shared_ptr<Communicator> make_threads() {
  throw Error(ErrorCode::kInvalidArgument,
              "the threads backend has no world of its own: start its ranks with run_threads()");
}

}  // namespace backends

namespace {

/// The first error of all ranks.
class FirstError {
 public:
  void set(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
  }
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void run_threads(int size, const std::function<void(std::shared_ptr<Communicator>)>& body,
                 std::chrono::milliseconds timeout) {
  TESSERA_CHECK(size >= 1, "run_threads: {} ranks", size);
  const auto group = std::make_shared<ThreadGroup>(size);
  const auto poison = std::make_shared<PoisonPage>();
  FirstError first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
#ifdef _OPENMP
      omp_set_num_threads(1);
#endif
      auto world = std::make_shared<ThreadCommunicator>("threads", rank, group,
                                                        std::make_shared<Engine>(poison, rank));
      world->set_timeout(timeout);
      try {
        body(world);
      } catch (const Error& error) {
        first.set(std::make_exception_ptr(error.with_rank(rank)));
        poison->poison(fmt::format("rank {}: {}", rank, error.message()));
      } catch (const std::exception& error) {
        first.set(
            std::make_exception_ptr(Error(ErrorCode::kInternal, error.what()).with_rank(rank)));
        poison->poison(fmt::format("rank {}: {}", rank, error.what()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  first.rethrow();
}

void run_threads(int size, const std::function<void(Communicator&)>& body) {
  run_threads(
      size, [&body](std::shared_ptr<Communicator> world) { body(*world); },
      std::chrono::minutes(10));
}

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
#include "tessera/comm/run_main.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tessera/comm/backends.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm {
namespace {

constexpr std::chrono::milliseconds kGrace{500};
constexpr std::chrono::seconds kReportTime{5};
constexpr std::chrono::seconds kLeaveTime{30};

std::atomic<bool> interrupted{false};

/// Takes SIGINT and SIGTERM in a thread of its own. They are blocked in all others, because a
/// handler would run on the stack of whatever it interrupts, and oneDNN 2.6's generated code keeps
/// data below the stack pointer where a handler's frame goes: results and heap would be corrupted.
class SignalWatch {
 public:
  SignalWatch() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    thread_ = std::thread([this] { watch(); });
  }
  ~SignalWatch() {
    is_done_ = true;
    pthread_kill(thread_.native_handle(), SIGTERM);  // wakes the thread
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  void watch() {
    while (true) {
      int signal = 0;
      if (sigwait(&signals_, &signal) != 0) continue;
      if (is_done_) return;
      // A second signal means now.
      if (interrupted.exchange(true)) std::_Exit(130);
    }
  }

  sigset_t signals_{};
  sigset_t before_{};
  std::atomic<bool> is_done_{false};
  std::thread thread_;
};

struct Variables {
  const char* rank;
  const char* size;
};

std::optional<Launch> read_set(const std::function<const char*(const char*)>& environment,
                               const Variables& variables) {
  const char* rank = environment(variables.rank);
  const char* size = environment(variables.size);
  if (rank == nullptr && size == nullptr) return std::nullopt;
  const auto number = [](const char* name, const char* text) {
    char* end = nullptr;
    const long value = text == nullptr ? -1 : std::strtol(text, &end, 10);
    if (text == nullptr || end == text || *end != 0 || value < 0 || value > (1 << 24)) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("the environment variable {} must be a number of ranks, not \"{}\"",
                              name, text == nullptr ? "" : text));
    }
    return static_cast<int>(value);
  };
  if (rank == nullptr || size == nullptr) return std::nullopt;  // an incomplete set says nothing
  const Launch launch{number(variables.rank, rank), number(variables.size, size), true};
  if (launch.rank >= launch.size) {
    throw Error(ErrorCode::kConfig, fmt::format("{}={} is not below {}={}", variables.rank, rank,
                                                variables.size, size));
  }
  return launch;
}

void print_error(const Error& error, int size) {
  const std::string rank =
      size > 1 && error.rank() >= 0 ? fmt::format("rank {}: ", error.rank()) : "";
  const std::string line =
      fmt::format("tessera: error: {}{} [{}]\n", rank, error.message(), to_string(error.code()));
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

/// Ends the job after an error of this rank.
int fail(const Error& error, const std::shared_ptr<Communicator>& world) {
  const int code = exit_code(error.code());
  if (world == nullptr) {
    print_error(error, 1);
    return code;
  }
  // A rank that only heard of the failure leaves the report to the one that knows it at first hand.
  if (error.code() == ErrorCode::kPeerFailed) std::this_thread::sleep_for(kGrace);
  if (world->poison(error.message())) {
    print_error(error.with_rank(world->rank()), world->size());
  } else {
    std::this_thread::sleep_for(kReportTime);  // the other one says why and ends the job
  }
  world->end_job(code);
  return code;
}

/// Ends the process when leaving takes too long: a rank that died must not keep the others for
/// ever.
class LeaveWatch {
 public:
  explicit LeaveWatch(int code) : thread_([this, code] { watch(code); }) {}
  ~LeaveWatch() {
    {
      const std::lock_guard lock(mutex_);
      has_left_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  LeaveWatch(const LeaveWatch&) = delete;
  LeaveWatch& operator=(const LeaveWatch&) = delete;

 private:
  void watch(int code) {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, kLeaveTime, [this] { return has_left_; })) return;
    std::fputs("tessera: error: the other ranks did not leave MPI in time\n", stderr);
    std::_Exit(code == 0 ? 1 : code);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool has_left_ = false;
  std::thread thread_;
};

}  // namespace

int exit_code(ErrorCode code) {
  if (code == ErrorCode::kConfig) return 2;
  return code == ErrorCode::kInterrupted ? 130 : 1;
}

Launch read_launch(const std::function<const char*(const char*)>& environment) {
  constexpr Variables levels[][2] = {
      {{"TESSERA_RANK", "TESSERA_WORLD_SIZE"}, {nullptr, nullptr}},
      {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {nullptr, nullptr}},
      {{"PMIX_RANK", "PMIX_SIZE"}, {"PMI_RANK", "PMI_SIZE"}},
      {{"SLURM_PROCID", "SLURM_NTASKS"}, {nullptr, nullptr}},
  };
  for (const auto& level : levels) {
    const auto first = read_set(environment, level[0]);
    const auto second = level[1].rank == nullptr ? std::nullopt : read_set(environment, level[1]);
    if (first && second && (first->rank != second->rank || first->size != second->size)) {
      throw Error(ErrorCode::kConfig,
                  fmt::format("two launchers disagree: {}={} of {} but {}={} of {}; unset one set",
                              level[0].rank, first->rank, first->size, level[1].rank, second->rank,
                              second->size));
    }
    if (first) return *first;
    if (second) return *second;
  }
  return {};
}

bool is_interrupted() { return interrupted; }

int run_main(const std::function<int(std::shared_ptr<Communicator>)>& body) {
  const SignalWatch signals;  // before any other thread is made, so that all of them inherit
  std::shared_ptr<Communicator> world;
  try {
    const Launch launch = read_launch([](const char* name) { return std::getenv(name); });
    const auto names = backend_names();
    const bool has_mpi = std::find(names.begin(), names.end(), "mpi") != names.end();
    if (launch.is_launched && launch.size > 1 && !has_mpi) {
      throw Error(
          ErrorCode::kUnsupported,
          "started with several ranks, but this build has no MPI backend (TESSERA_MPI=OFF)");
    }
    world = make_world(launch.is_launched && has_mpi ? "mpi" : "self");
    const int result = body(world);
    world->barrier().wait();
    const LeaveWatch watch(result);
    world.reset();
    return result;
  } catch (const Error& error) {
    return fail(error, world);
  } catch (const std::exception& error) {
    return fail(Error(ErrorCode::kInternal, error.what()), world);
  }
}

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
// Runs under mpirun in the ways that a job can end: run_main_program WAY. run_main_test.sh says
// what must come of each.
#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "tessera/comm/run_main.hpp"
#include "tessera/core/context.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
namespace {

using comm::Communicator;

/// Collectives for ever, or until a signal.
void loop(Communicator& world) {
  const auto context = Context::create();
  const Tensor x = Tensor::zeros(*context, {1000}, DType::kF32);
  while (!comm::is_interrupted()) {
    world.all_reduce(x).wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw Error(ErrorCode::kInterrupted, "stopped by a signal");
}

int run(const std::string& way, const std::shared_ptr<Communicator>& world) {
  const int rank = world->rank();
  if (way == "success") {
    world->barrier().wait();
    return 0;
  }
  if (way == "mask") {
    // Handlers must never run on the stack of a thread that computes.
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    const bool is_blocked =
        sigismember(&blocked, SIGINT) == 1 && sigismember(&blocked, SIGTERM) == 1;
    return is_blocked ? 0 : 1;
  }
  if (way == "config") throw Error(ErrorCode::kConfig, "unknown key \"lerning_rate\"");
  if (way == "one-throws") {
    if (rank == world->size() - 1) throw Error(ErrorCode::kNonFinite, "the loss is NaN");
    loop(*world);
  }
  if (way == "one-is-killed") {
    if (rank == world->size() - 1) std::raise(SIGKILL);
    loop(*world);
  }
  if (way == "one-is-late") {
    if (rank == world->size() - 1) {
      std::this_thread::sleep_for(std::chrono::seconds(30));
      return 0;
    }
    world->set_timeout(std::chrono::milliseconds(500));
    loop(*world);
  }
  if (way == "signal") {
    if (rank == 0) {
      fmt::print("ready\n");
      std::fflush(stdout);
    }
    loop(*world);
  }
  throw Error(ErrorCode::kConfig, fmt::format("no way \"{}\"", way));
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  return tessera::comm::run_main([&](const std::shared_ptr<tessera::comm::Communicator>& world) {
    return tessera::run(way, world);
  });
}

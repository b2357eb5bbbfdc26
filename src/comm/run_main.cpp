// SPDX-License-Identifier: Apache-2.0
#include "tessera/comm/run_main.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "tessera/comm/backends.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm {
namespace {

volatile std::sig_atomic_t interrupted = 0;

extern "C" void note_signal(int) {
  // A second signal means now.
  if (interrupted != 0) std::_Exit(130);
  interrupted = 1;
}

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
  const bool is_first = world->poison(error.message());
  if (is_first) {
    print_error(error.with_rank(world->rank()), world->size());
  } else {
    // The first one ends the job; leave it the time to say why.
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  world->end_job(code);
  return code;
}

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

bool is_interrupted() { return interrupted != 0; }

int run_main(const std::function<int(std::shared_ptr<Communicator>)>& body) {
  std::signal(SIGINT, note_signal);
  std::signal(SIGTERM, note_signal);
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
    return result;
  } catch (const Error& error) {
    return fail(error, world);
  } catch (const std::exception& error) {
    return fail(Error(ErrorCode::kInternal, error.what()), world);
  }
}

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
// The main function of a program of ranks: makes the world, runs the body, turns an exception into
// one clear message from one rank and the end of the whole job.
#pragma once

#include <functional>
#include <memory>

#include "tessera/comm/communicator.hpp"

namespace tessera::comm {

/// Exit codes: 0 success, 1 failure, 2 bad usage or configuration (kConfig), 130 interrupted.
int exit_code(ErrorCode code);

/// How many ranks the environment says were started, and which this is; {0, 1} for a program
/// started alone. Looked for in this order: TESSERA_RANK/TESSERA_WORLD_SIZE, Open MPI, PMIx, PMI,
/// SLURM. A rank variable without its size, or two complete sets of one launcher level (PMIx and
/// PMI) that disagree, is a kConfig error.
struct Launch {
  int rank = 0;
  int size = 1;
  bool is_launched = false;
};
Launch read_launch(const std::function<const char*(const char*)>& environment);

/// True after SIGINT or SIGTERM, in a program that runs in run_main. Training loops look at it
/// between micro-batches, and throw Error{kInterrupted}. (The signals are taken by a thread of
/// run_main. A program with handlers of its own must install them with SA_ONSTACK and give every
/// thread that computes an alternate stack: oneDNN 2.6 keeps data below the stack pointer.)
bool is_interrupted();

/// Runs `body` with the world communicator: "mpi" when started by a launcher, "self" alone. Returns
/// the body's result. An exception is printed to standard error by the rank that failed first
/// ("tessera: error: ..."), the world is poisoned so that the other ranks leave their waits, and
/// under MPI the job is ended with the exit code within seconds. A rank that returns while another
/// still waits for it lets that wait run into its deadline (Communicator::set_timeout; 10 minutes).
int run_main(const std::function<int(std::shared_ptr<Communicator> world)>& body);

}  // namespace tessera::comm

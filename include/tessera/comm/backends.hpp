// SPDX-License-Identifier: Apache-2.0
// Communicators by backend name. The table is generated from the files in src/comm/backends.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.hpp"

namespace tessera::comm {

/// Names of the backends in this build.
std::vector<std::string_view> backend_names();

/// The world communicator of a backend: "self" (one rank) or "mpi" (initialises MPI with
/// THREAD_MULTIPLE if the caller has not; a lower thread level is an error that says how to
/// initialise). "threads" has no world: use run_threads. An unknown name is an error that lists the
/// known ones.
std::shared_ptr<Communicator> make_world(std::string_view backend);

/// Runs `body(communicator)` on `size` threads, the ranks of one process, each with a "threads"
/// communicator. When a rank throws, the communicator is poisoned, the others leave their waits,
/// and the first error (by time) is rethrown with its rank after all threads have joined.
void run_threads(int size, const std::function<void(Communicator&)>& body);
/// The same, handing out shared ownership (for objects that keep the communicator).
void run_threads(int size, const std::function<void(std::shared_ptr<Communicator>)>& body,
                 std::chrono::milliseconds timeout);

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
// Opt-in header for callers who bring their own MPI communicator.
#pragma once

#include <mpi.h>

#include <memory>

#include "tessera/comm/communicator.hpp"

namespace tessera::comm {

enum class SharedMemory { kUse, kAvoid };

/// A communicator over a duplicate of `communicator`. Collective. MPI must have been initialised
/// with MPI_THREAD_MULTIPLE (kUnsupported error otherwise), and is finalised by the caller, after
/// the result is gone. Ranks of one node use shared memory, others direct exchange over messages;
/// kAvoid uses messages everywhere.
std::shared_ptr<Communicator> from_mpi(MPI_Comm communicator,
                                       SharedMemory shared = SharedMemory::kUse);

}  // namespace tessera::comm

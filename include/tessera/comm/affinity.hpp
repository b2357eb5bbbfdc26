// SPDX-License-Identifier: Apache-2.0
// How many CPU threads a rank should use: its share of the cores that the node's ranks may run on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/comm/communicator.hpp"

namespace tessera::comm {

/// The cores that a rank may run on, and the machine it is on.
struct CoreMask {
  std::string host;
  std::vector<int> cores;
};

/// Threads for rank `rank`: every core of its host is shared out evenly among the ranks whose masks
/// hold it, and a rank gets the whole part of its sum, at least 1. Pure.
int threads_for_rank(const std::vector<CoreMask>& masks, int rank);

/// This process's mask.
CoreMask own_core_mask();

/// threads_for_rank over the masks of all ranks. Collective.
int rank_threads(Communicator& world);

}  // namespace tessera::comm

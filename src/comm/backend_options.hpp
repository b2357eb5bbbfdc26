// SPDX-License-Identifier: Apache-2.0
// What every backend file provides: `make_<stem>` in tessera::comm::backends.
#pragma once

#include <memory>

#include "tessera/comm/communicator.hpp"

namespace tessera::comm {

/// One process's view of a world; a backend that has no world of its own (threads) refuses.
using MakeWorld = std::shared_ptr<Communicator> (*)();

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
// Communicators around a communicator. They change no result. Splits of a decorated communicator
// are decorated likewise.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/profile.hpp"

namespace tessera::comm {

/// Records every operation in `profiler` (lane kCommunication, category "comm"), from its call to
/// its end, as "all_reduce dp 4.0 MiB". An operation is recorded when it is first seen finished.
/// The profiler must outlive the communicator and its Work.
std::shared_ptr<Communicator> traced(std::shared_ptr<Communicator> inner, Profiler& profiler);

struct DelayOptions {
  std::uint64_t seed = 0;  ///< give every rank another
  std::chrono::microseconds longest{2000};
};

/// Sleeps for a random time before every second operation starts, on average, and keeps the end of
/// every second one back: no result may depend on timing, and tests show it with this.
std::shared_ptr<Communicator> delayed(std::shared_ptr<Communicator> inner,
                                      const DelayOptions& options);

}  // namespace tessera::comm

// SPDX-License-Identifier: Apache-2.0
// A whole training run from a configuration: what `tessera train` does. examples/train_gpt.cpp is
// the same run with its loop written out.
#pragma once

#include <memory>

#include "tessera/comm/communicator.hpp"
#include "tessera/train/config.hpp"

namespace tessera::train {

/// Collective. Trains, evaluates, writes the run directory and the final weights, prints progress
/// and a sample of text. Throws Error: kConfig before any work, kInterrupted after a signal,
/// kNonFinite after more than train.skip_limit skipped steps in a row.
void run(const Config& config, const std::shared_ptr<comm::Communicator>& world);

}  // namespace tessera::train

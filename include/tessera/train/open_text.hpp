// SPDX-License-Identifier: Apache-2.0
// The training text of a run, the same on all ranks.
#pragma once

#include <memory>

#include "tessera/comm/communicator.hpp"
#include "tessera/data/text.hpp"
#include "tessera/train/config.hpp"

namespace tessera::train {

/// The text of data.path, mapped. Collective: kConfig error when the ranks read different texts.
std::shared_ptr<const data::ByteText> open_text(const Config& config, comm::Communicator& world);

}  // namespace tessera::train

// SPDX-License-Identifier: Apache-2.0
// What the autograd keeps per context.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/autograd/saved.hpp"
#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

struct AutogradState {
  std::uint64_t next_sequence = 1;
  std::vector<PackHook> pack_hooks;
  /// What ops touched that was made outside a recomputed region, while that runs for the first
  /// time.
  std::vector<std::shared_ptr<VariableState>>* touched = nullptr;
};

}  // namespace tessera::autograd

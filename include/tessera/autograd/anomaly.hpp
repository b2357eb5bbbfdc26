// SPDX-License-Identifier: Apache-2.0
// Anomaly mode: the first op that makes a NaN or Inf, forward or backward, is named.
#pragma once

#include "tessera/core/context.hpp"

namespace tessera::autograd {

/// While it lives, an op whose output or gradient is not finite throws Error{kNonFinite} with the
/// op's name, the phase, the position of the first bad element and its value.
class AnomalyScope {
 public:
  explicit AnomalyScope(Context& context);
  ~AnomalyScope();
  AnomalyScope(const AnomalyScope&) = delete;
  AnomalyScope& operator=(const AnomalyScope&) = delete;

 private:
  Context& context_;
  int token_;
};

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
// RMSNorm over the last dim, alone and with the residual sum before it.
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// x [..., C], weight [C]; the last dim must be whole.
Variable rms_norm(const Variable& x, const Variable& weight, double eps = 1e-5);

struct NormedSum {
  Variable sum;     ///< x + residual
  Variable normed;  ///< rms_norm(sum)
};
/// The sum of a residual stream and a branch, and its norm, in one pass; both take gradients.
NormedSum add_rms_norm(const Variable& x, const Variable& residual, const Variable& weight,
                       double eps = 1e-5);

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
// The gradient norm over the whole mesh, by placement: each logical element once, summed over fixed
// blocks of the global index, so that the norm does not depend on who holds what.
#pragma once

#include <memory>
#include <span>

#include "tessera/comm/communicator.hpp"
#include "tessera/spmd/parameter.hpp"

namespace tessera::optim {

/// 2-norm of all gradients (f64). `world` may be null for one process. Every rank must call it.
double gradient_norm(std::span<const spmd::ParameterPtr> parameters, comm::Communicator* world);

/// min(1, limit / (norm + 1e-6)): what to multiply gradients with. A limit of 0 or less means no
/// clipping. A norm that is not finite gives 0 with a counted skip left to the caller.
double clip_coefficient(double norm, double limit);

}  // namespace tessera::optim

// SPDX-License-Identifier: Apache-2.0
// Local reduction of the ranks' pieces, in rank order.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::comm {

/// out[i] = inputs[0][i] op inputs[1][i] op ...; `out` may be one of the inputs. 8- and 16-bit
/// floats are reduced in f32 and rounded once.
void reduce_pieces(DType dtype, ReduceOp op, void* out, std::span<const void* const> inputs,
                   std::int64_t count);

}  // namespace tessera::comm

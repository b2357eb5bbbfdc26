// SPDX-License-Identifier: Apache-2.0
// y = x w^T, contracting the last dims of both; w may have several output dims (a packed
// projection).
#pragma once

#include "tessera/autograd/variable.hpp"

namespace tessera::autograd {

/// x [lead..., K...], w [N..., K...] with `contracted` dims K; result [lead..., N...]. Sharding: a
/// dim of lead or N may be sharded; K sharded alike in both gives P (row-parallel).
Variable linear(const Variable& x, const Variable& w, int contracted = 1);
/// Plus bias [N...], broadcast over lead. Where the product is P the bias must be added after the
/// reduction: that is a type error here.
Variable linear(const Variable& x, const Variable& w, const Variable& bias, int contracted = 1);

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
// For functions whose type is that of several rules one after the other.
#pragma once

#include <memory>

#include "tessera/autograd/type_rule.hpp"

namespace tessera::autograd {

/// An operand of `type` for infer_type, in the place of a value that is not made.
inline Variable typed_operand(const Variable& like, const ShardingType& type, bool takes_gradient) {
  auto state = std::make_shared<VariableState>();
  state->value = like.value();
  state->type = type;
  state->takes_gradient = takes_gradient;
  return Variable(std::move(state));
}

/// x [lead..., inner...] times w [outputs..., inner...]: labels 0 ... of the result's dims, then
/// those contracted.
inline TypeRule product_rule(int lead, int outputs, int contracted) {
  DimLabels x = labels_of(lead);
  DimLabels w = labels_of(outputs, lead);
  for (int i = 0; i < contracted; ++i) {
    x.push_back(lead + outputs + i);
    w.push_back(lead + outputs + i);
  }
  return TypeRule().input(x).input(w).result(labels_of(lead + outputs)).linear_in(0).linear_in(1);
}

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/anomaly.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tessera/core/error.hpp"
#include "tessera/core/tensor.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::autograd {
namespace {

template <typename T>
void check_elements(OpPhase phase, std::string_view op, const Tensor& dense, DType dtype) {
  const T* values = dense.data<T>();
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    if (std::isfinite(values[i])) [[likely]]
      continue;
    throw Error(ErrorCode::kNonFinite,
                fmt::format("{} {}: element {} of the {} {} of shape {} is {}; it is the first op "
                            "with a value that is not finite",
                            op, phase == OpPhase::kForward ? "forward" : "backward", i,
                            to_string(dtype), phase == OpPhase::kForward ? "output" : "gradient",
                            dense.shape().to_string(), values[i]));
  }
}

void check_finite(OpPhase phase, std::string_view op, const Tensor& value) {
  if (!is_floating(value.dtype())) return;
  if (value.dtype() == DType::kF64) {
    check_elements<double>(phase, op, ops::contiguous(value), value.dtype());
  } else {
    check_elements<float>(phase, op, ops::contiguous(ops::cast(value, DType::kF32)), value.dtype());
  }
}

}  // namespace

AnomalyScope::AnomalyScope(Context& context)
    : context_(context),
      token_(context.add_observer([](OpPhase phase, std::string_view op, const Tensor& value,
                                     const ShardingType&) { check_finite(phase, op, value); })) {}

AnomalyScope::~AnomalyScope() { context_.remove_observer(token_); }

}  // namespace tessera::autograd

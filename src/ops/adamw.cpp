// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/adamw.hpp"

#include <fmt/format.h>

#include <vector>

#include "tessera/core/context.hpp"

namespace tessera::ops {
namespace {

AdamWTensor checked(const AdamWState& state) {
  const Tensor* all[] = {&state.parameter, &state.gradient, &state.m, &state.v};
  for (const Tensor* tensor : all) {
    if (tensor->shape() != state.parameter.shape() || !tensor->is_contiguous()) {
      throw Error(
          ErrorCode::kShape,
          fmt::format("adamw: parameter, gradient and moments must be contiguous and of one "
                      "shape; the parameter is {}, another {}",
                      state.parameter.shape().to_string(), tensor->shape().to_string()));
    }
    if (tensor->dtype() != state.parameter.dtype()) {
      throw Error(ErrorCode::kDType,
                  fmt::format("adamw: the parameter is {} but another tensor {}",
                              to_string(state.parameter.dtype()), to_string(tensor->dtype())));
    }
  }
  return {state.parameter.view(), state.gradient.view(), state.m.view(), state.v.view(),
          state.weight_decay};
}

}  // namespace

void adamw(std::span<const AdamWState> tensors, const AdamWOptions& options) {
  TESSERA_CHECK(options.step >= 1, "adamw: steps count from 1, not {}", options.step);
  if (tensors.empty()) return;
  std::vector<AdamWTensor> views;
  for (const AdamWState& state : tensors) {
    if (state.parameter.numel() > 0) views.push_back(checked(state));
  }
  const AdamWArgs args{views,       options.lr,         options.beta1, options.beta2,
                       options.eps, options.grad_scale, options.step};
  Stream& stream = tensors[0].parameter.context().stream();
  on_device(tensors[0].parameter.device(), [&]<DeviceType D>() { adamw_kernel<D>(args, stream); });
  for (const AdamWState& state : tensors) state.parameter.mark_changed();
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
#include "tessera/autograd/saved.hpp"

#include <fmt/format.h>

#include "state.hpp"
#include "tessera/core/context.hpp"

namespace tessera::autograd {

Saved::Saved(const Tensor& tensor) { pack(tensor); }

Saved::Saved(const Variable& variable) {
  if (variable.state()->regather) {
    unpack_ = variable.state()->regather;
  } else {
    pack(variable.value());
  }
}

void Saved::pack(const Tensor& tensor) {
  const auto& hooks = tensor.context().extension<AutogradState>().pack_hooks;
  if (!hooks.empty() && hooks.back() && tensor.context().records_gradients()) {
    unpack_ = hooks.back()(tensor);
    return;
  }
  tensor_ = tensor;
  version_ = tensor.storage()->version();
}

Tensor Saved::get() const {
  if (unpack_) return unpack_();
  TESSERA_CHECK(tensor_.storage()->version() == version_,
                "a tensor of shape {} that was saved for backward has been changed in place since "
                "(version {} is now {}): run backward before the change, or change a copy",
                tensor_.shape().to_string(), version_, tensor_.storage()->version());
  return tensor_;
}

PackHookScope::PackHookScope(Context& context, PackHook hook) : context_(context) {
  context.extension<AutogradState>().pack_hooks.push_back(std::move(hook));
}

PackHookScope::~PackHookScope() { context_.extension<AutogradState>().pack_hooks.pop_back(); }

}  // namespace tessera::autograd

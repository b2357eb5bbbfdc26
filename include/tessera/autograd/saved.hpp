// SPDX-License-Identifier: Apache-2.0
// A tensor that a gradient closure needs later. It remembers the version it saw (a later in-place
// change is an error at backward), and goes through the pack hook of the moment: offload,
// recompute, compress.
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/autograd/variable.hpp"
#include "tessera/core/context.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::autograd {

/// Takes a tensor to be saved and returns how to get it back.
using PackHook = std::function<std::function<Tensor()>(const Tensor&)>;

class Saved {
 public:
  Saved() = default;
  /// A value that the op itself made, or an input.
  explicit Saved(const Tensor& tensor);
  /// An input; a parameter with a regather recipe is saved as the recipe.
  explicit Saved(const Variable& variable);

  /// The tensor. Throws Error{kInvalidArgument} when it was changed in place since.
  Tensor get() const;

 private:
  void pack(const Tensor& tensor);

  Tensor tensor_;
  std::uint64_t version_ = 0;
  std::function<Tensor()> unpack_;
};

/// Tensors saved while it lives go through `hook` (the innermost scope counts).
class PackHookScope {
 public:
  PackHookScope(Context& context, PackHook hook);
  ~PackHookScope();
  PackHookScope(const PackHookScope&) = delete;
  PackHookScope& operator=(const PackHookScope&) = delete;

 private:
  Context& context_;
};

}  // namespace tessera::autograd

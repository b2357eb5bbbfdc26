// SPDX-License-Identifier: Apache-2.0
// Where a gradient closure whose kernel adds sums a weight's gradient.
#pragma once

#include "tessera/autograd/op.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::autograd {

/// The leaf's own accumulator, zeroed when it holds nothing yet; or a fresh zero tensor (of
/// `like`'s context and dtype) that add() gives to the input.
class WeightSum {
 public:
  WeightSum(Gradients& gradients, int input, const Tensor& like, const Shape& shape)
      : gradients_(gradients), input_(input) {
    bool accumulates = false;
    tensor_ = gradients.target(input, accumulates);
    is_target_ = tensor_.defined();
    if (!is_target_) {
      tensor_ = Tensor::zeros(like.context(), shape, like.dtype());
    } else if (!accumulates) {
      ops::fill(tensor_, 0.0);
    }
  }
  const Tensor& tensor() const { return tensor_; }
  /// After the kernel.
  void add() {
    if (!is_target_) gradients_.add(input_, tensor_);
  }

 private:
  Gradients& gradients_;
  int input_;
  Tensor tensor_;
  bool is_target_ = false;
};

}  // namespace tessera::autograd

// SPDX-License-Identifier: Apache-2.0
// The checks that ops share: an error names the op and the operand, what was expected and what
// came.
#pragma once

#include <fmt/format.h>

#include "tessera/core/tensor.hpp"

namespace tessera::ops {

inline void require_shape(const char* op, const char* operand, const Tensor& tensor,
                          const Shape& expected) {
  if (tensor.shape() != expected) {
    throw Error(ErrorCode::kShape, fmt::format("{}: {} must be {}, not {}", op, operand,
                                               expected.to_string(), tensor.shape().to_string()));
  }
}

inline void require_dtype(const char* op, const char* operand, const Tensor& tensor,
                          DType expected) {
  if (tensor.dtype() != expected) {
    throw Error(ErrorCode::kDType, fmt::format("{}: {} must be {}, not {}", op, operand,
                                               to_string(expected), to_string(tensor.dtype())));
  }
}

/// For operands that are changed in place.
inline void require_contiguous(const char* op, const char* operand, const Tensor& tensor) {
  TESSERA_CHECK(tensor.is_contiguous(), "{}: {} {} is changed in place and must be contiguous", op,
                operand, tensor.shape().to_string());
}

}  // namespace tessera::ops

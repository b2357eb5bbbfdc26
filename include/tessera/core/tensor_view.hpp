// SPDX-License-Identifier: Apache-2.0
// What a kernel sees: a typed, strided window on memory that it neither owns nor keeps alive.
#pragma once

#include <cstdint>

#include "tessera/core/dtype.hpp"
#include "tessera/core/shape.hpp"

namespace tessera {

struct TensorView {
  void* data = nullptr;  ///< address of the first element
  DType dtype = DType::kF32;
  Shape shape;
  Shape strides;  ///< in elements

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  std::int64_t numel() const { return shape.numel(); }
  bool is_contiguous() const;
};

}  // namespace tessera

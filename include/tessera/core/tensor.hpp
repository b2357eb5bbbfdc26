// SPDX-License-Identifier: Apache-2.0
// A strided view over shared storage. Copying a Tensor copies the handle, not the data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/core/device.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/memory.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/core/storage.hpp"
#include "tessera/core/tensor_view.hpp"

namespace tessera {

class Context;

class Tensor {
 public:
  /// The undefined tensor.
  Tensor() = default;
  Tensor(std::shared_ptr<Storage> storage, DType dtype, Shape shape, Shape strides,
         std::int64_t offset);

  /// Uninitialised memory in the context's current category.
  static Tensor empty(Context& context, const Shape& shape, DType dtype);
  static Tensor empty(Context& context, const Shape& shape, DType dtype, MemoryCategory category);
  /// All bytes zero.
  static Tensor zeros(Context& context, const Shape& shape, DType dtype);
  static Tensor zeros(Context& context, const Shape& shape, DType dtype, MemoryCategory category);
  /// Copies host values of the dtype's C++ type; `values.size()` must be the shape's numel.
  template <typename T>
  static Tensor from(Context& context, const Shape& shape, std::span<const T> values) {
    return from_bytes(context, shape, dtype_of<T>, values.data(), values.size());
  }
  template <typename T>
  static Tensor from(Context& context, const Shape& shape, const std::vector<T>& values) {
    return from(context, shape, std::span<const T>(values));
  }

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  std::int64_t offset() const { return offset_; }
  int rank() const { return shape_.rank(); }
  std::int64_t numel() const { return shape_.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  Device device() const;
  Context& context() const;
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  bool is_contiguous() const;
  /// True when both look at some byte of one storage.
  bool shares_storage(const Tensor& other) const { return storage_ == other.storage_; }

  TensorView view() const;
  /// Address of the first element; kDType error when T is not the dtype.
  template <typename T>
  T* data() const {
    check_dtype(dtype_of<T>);
    return static_cast<T*>(raw());
  }
  void* raw() const;
  /// Elements in row-major order, whatever the strides; kDType error when T is not the dtype.
  template <typename T>
  std::vector<T> to_vector() const {
    check_dtype(dtype_of<T>);
    std::vector<T> out(static_cast<std::size_t>(numel()));
    copy_out(out.data());
    return out;
  }
  /// The value of a one-element floating or integer tensor.
  double item() const;

  // Views: no data moves.
  /// The same elements under another shape (one dim may be -1); needs a contiguous tensor.
  Tensor reshape(const Shape& shape) const;
  /// Dims in a new order: result dim i is this tensor's dim order[i].
  Tensor permute(std::span<const int> order) const;
  Tensor permute(std::initializer_list<int> order) const;
  Tensor transpose(int a, int b) const;
  /// Elements [first, first + size) of a dim.
  Tensor narrow(int dim, std::int64_t first, std::int64_t size) const;
  /// One index of a dim; the dim is dropped.
  Tensor select(int dim, std::int64_t index) const;
  /// Stride 0 in dims of size 1 (and new leading dims) so that the shape becomes `shape`.
  Tensor broadcast_to(const Shape& shape) const;

  /// To be called by whoever changes elements in place.
  void mark_changed() const { storage_->bump_version(); }

 private:
  static Tensor from_bytes(Context& context, const Shape& shape, DType dtype, const void* data,
                           std::size_t count);
  void check_dtype(DType wanted) const;
  void copy_out(void* out) const;

  std::shared_ptr<Storage> storage_;
  DType dtype_ = DType::kF32;
  Shape shape_;
  Shape strides_;
  std::int64_t offset_ = 0;
};

}  // namespace tessera

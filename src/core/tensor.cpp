// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/tensor.hpp"

#include <fmt/format.h>

#include <cstring>

#include "tessera/core/context.hpp"
#include "tessera/core/low_precision.hpp"

namespace tessera {
namespace {

/// Copies a strided window to dense memory, row-major.
void copy_strided(const TensorView& from, std::size_t element, std::byte* to) {
  if (from.numel() == 0) return;
  const int rank = from.shape.rank();
  const std::int64_t row = rank == 0 ? 1 : from.shape.back(0);
  const std::int64_t row_stride = rank == 0 ? 1 : from.strides.back(0);
  const std::int64_t rows = from.numel() / row;
  const auto* base = static_cast<const std::byte*>(from.data);
  Shape index = Shape::filled(rank, 0);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t start = 0;
    for (int d = 0; d + 1 < rank; ++d) start += index[d] * from.strides[d];
    for (std::int64_t i = 0; i < row; ++i, to += element) {
      std::memcpy(to, base + static_cast<std::size_t>(start + i * row_stride) * element, element);
    }
    for (int d = rank - 2; d >= 0; --d) {
      if (++index[d] < from.shape[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace

bool TensorView::is_contiguous() const {
  std::int64_t expected = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

Tensor::Tensor(std::shared_ptr<Storage> storage, DType dtype, Shape shape, Shape strides,
               std::int64_t offset)
    : storage_(std::move(storage)),
      dtype_(dtype),
      shape_(shape),
      strides_(strides),
      offset_(offset) {}

Tensor Tensor::empty(Context& context, const Shape& shape, DType dtype) {
  return empty(context, shape, dtype, context.category());
}

Tensor Tensor::empty(Context& context, const Shape& shape, DType dtype, MemoryCategory category) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count) || count > (std::int64_t{1} << 59)) {
      throw Error(ErrorCode::kShape,
                  fmt::format("{} is not the shape of a tensor: every size must be 0 or more and "
                              "the tensor must fit in memory",
                              shape.to_string()));
    }
  }
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  auto storage = std::make_shared<Storage>(context.shared_from_this(), bytes, category);
  return Tensor(std::move(storage), dtype, shape, contiguous_strides(shape), 0);
}

Tensor Tensor::zeros(Context& context, const Shape& shape, DType dtype) {
  return zeros(context, shape, dtype, context.category());
}

Tensor Tensor::zeros(Context& context, const Shape& shape, DType dtype, MemoryCategory category) {
  Tensor out = empty(context, shape, dtype, category);
  if (out.bytes() != 0) std::memset(out.raw(), 0, out.bytes());
  return out;
}

Tensor Tensor::from_bytes(Context& context, const Shape& shape, DType dtype, const void* data,
                          std::size_t count) {
  if (static_cast<std::int64_t>(count) != shape.numel()) {
    throw Error(ErrorCode::kShape, fmt::format("{} values do not fill a tensor of shape {}", count,
                                               shape.to_string()));
  }
  Tensor out = empty(context, shape, dtype);
  if (out.bytes() != 0) std::memcpy(out.raw(), data, out.bytes());
  return out;
}

Device Tensor::device() const { return context().device(); }

Context& Tensor::context() const {
  TESSERA_CHECK(defined(), "an undefined tensor has no context: it was never assigned");
  return *storage_->context();
}

bool Tensor::is_contiguous() const { return view().is_contiguous(); }

TensorView Tensor::view() const { return {defined() ? raw() : nullptr, dtype_, shape_, strides_}; }

void* Tensor::raw() const {
  TESSERA_CHECK(defined(), "an undefined tensor has no data: it was never assigned");
  if (storage_->data() == nullptr) return nullptr;
  return static_cast<std::byte*>(storage_->data()) +
         static_cast<std::size_t>(offset_) * size_of(dtype_);
}

void Tensor::check_dtype(DType wanted) const {
  if (dtype_ != wanted) {
    throw Error(ErrorCode::kDType, fmt::format("the tensor {} holds {}, not {}", shape_.to_string(),
                                               to_string(dtype_), to_string(wanted)));
  }
}

void Tensor::copy_out(void* out) const {
  TESSERA_CHECK(defined(), "an undefined tensor has no elements: it was never assigned");
  copy_strided(view(), size_of(dtype_), static_cast<std::byte*>(out));
}

double Tensor::item() const {
  if (numel() != 1) {
    throw Error(ErrorCode::kShape,
                fmt::format("item() needs one element, not the shape {}", shape_.to_string()));
  }
  switch (dtype_) {
    case DType::kF64:
      return *data<double>();
    case DType::kF32:
      return static_cast<double>(*data<float>());
    case DType::kF16:
      return static_cast<double>(static_cast<float>(*data<f16>()));
    case DType::kBF16:
      return static_cast<double>(static_cast<float>(*data<bf16>()));
    case DType::kF8E4M3:
      return static_cast<double>(static_cast<float>(*data<f8e4m3>()));
    case DType::kF8E5M2:
      return static_cast<double>(static_cast<float>(*data<f8e5m2>()));
    case DType::kI64:
      return static_cast<double>(*data<std::int64_t>());
    case DType::kI32:
      return static_cast<double>(*data<std::int32_t>());
    case DType::kU8:
      return static_cast<double>(*data<std::uint8_t>());
  }
  return 0.0;
}

Tensor Tensor::reshape(const Shape& shape) const {
  Shape wanted = shape;
  std::int64_t known = 1;
  int open = -1;
  for (int i = 0; i < wanted.rank(); ++i) {
    if (wanted[i] != -1) {
      TESSERA_CHECK(wanted[i] >= 0, "reshape to {}: a size is negative", shape.to_string());
      known *= wanted[i];
    } else {
      TESSERA_CHECK(open < 0, "reshape to {}: only one dim may be -1", shape.to_string());
      open = i;
    }
  }
  if (open >= 0) wanted[open] = known == 0 ? 0 : numel() / known;
  if (wanted.numel() != numel()) {
    throw Error(ErrorCode::kShape, fmt::format("a tensor of shape {} cannot be seen as {}",
                                               shape_.to_string(), shape.to_string()));
  }
  TESSERA_CHECK(is_contiguous(), "reshape needs a contiguous tensor; make a contiguous copy of {}",
                shape_.to_string());
  return Tensor(storage_, dtype_, wanted, contiguous_strides(wanted), offset_);
}

Tensor Tensor::permute(std::span<const int> order) const {
  TESSERA_CHECK(static_cast<int>(order.size()) == rank(), "permute of {} needs {} dims, not {}",
                shape_.to_string(), rank(), order.size());
  Shape shape = shape_;
  Shape strides = strides_;
  unsigned seen = 0;
  for (int i = 0; i < rank(); ++i) {
    const int dim = order[static_cast<std::size_t>(i)];
    TESSERA_CHECK(dim >= 0 && dim < rank() && (seen & (1U << dim)) == 0,
                  "permute of {}: dim {} is out of range or named twice", shape_.to_string(), dim);
    seen |= 1U << dim;
    shape[i] = shape_[dim];
    strides[i] = strides_[dim];
  }
  return Tensor(storage_, dtype_, shape, strides, offset_);
}

Tensor Tensor::permute(std::initializer_list<int> order) const {
  return permute(std::span<const int>(order.begin(), order.size()));
}

Tensor Tensor::transpose(int a, int b) const {
  std::array<int, kMaxRank> order{};
  for (int i = 0; i < rank(); ++i) order[static_cast<std::size_t>(i)] = i;
  TESSERA_CHECK(a >= 0 && b >= 0 && a < rank() && b < rank(), "transpose({}, {}) of {}", a, b,
                shape_.to_string());
  std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
  return permute(std::span<const int>(order.data(), static_cast<std::size_t>(rank())));
}

Tensor Tensor::narrow(int dim, std::int64_t first, std::int64_t size) const {
  TESSERA_CHECK(dim >= 0 && dim < rank() && first >= 0 && size >= 0 && first <= shape_[dim] &&
                    size <= shape_[dim] - first,
                "narrow of {}: dim {} has no {} elements from {} on", shape_.to_string(), dim, size,
                first);
  Shape shape = shape_;
  shape[dim] = size;
  return Tensor(storage_, dtype_, shape, strides_, offset_ + first * strides_[dim]);
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  const Tensor one = narrow(dim, index, 1);
  Shape shape;
  Shape strides;
  for (int i = 0; i < rank(); ++i) {
    if (i == dim) continue;
    shape.push_back(shape_[i]);
    strides.push_back(strides_[i]);
  }
  return Tensor(storage_, dtype_, shape, strides, one.offset());
}

Tensor Tensor::broadcast_to(const Shape& shape) const {
  const int lead = shape.rank() - rank();
  bool fits = lead >= 0;
  Shape strides = Shape::filled(shape.rank(), 0);
  for (int i = 0; fits && i < shape.rank(); ++i) {
    fits = shape[i] >= 0;
    if (i < lead) continue;
    const std::int64_t own = shape_[i - lead];
    fits = fits && (own == shape[i] || own == 1);
    strides[i] = own == shape[i] ? strides_[i - lead] : 0;
  }
  if (!fits) {
    throw Error(ErrorCode::kShape,
                fmt::format("{} does not broadcast to {}", shape_.to_string(), shape.to_string()));
  }
  return Tensor(storage_, dtype_, shape, strides, offset_);
}

}  // namespace tessera

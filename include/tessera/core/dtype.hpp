// SPDX-License-Identifier: Apache-2.0
// Element types. The 8- and 16-bit floats are our own types with exact rounding
// (low_precision.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

enum class DType : std::uint8_t { kF64, kF32, kF16, kBF16, kF8E4M3, kF8E5M2, kI64, kI32, kU8 };

inline constexpr int kDTypeCount = 9;

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  constexpr std::size_t sizes[kDTypeCount] = {8, 4, 2, 2, 1, 1, 8, 4, 1};
  return sizes[static_cast<std::size_t>(dtype)];
}

/// Short name as in logs and files: "f64" "f32" "f16" "bf16" "f8e4m3" "f8e5m2" "i64" "i32" "u8".
const char* to_string(DType dtype);

constexpr bool is_floating(DType dtype) { return dtype <= DType::kF8E5M2; }

struct f16;
struct bf16;
struct f8e4m3;
struct f8e5m2;

namespace detail {
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<f8e4m3> {
  static constexpr DType value = DType::kF8E4M3;
};
template <>
struct DTypeOf<f8e5m2> {
  static constexpr DType value = DType::kF8E5M2;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kU8;
};
}  // namespace detail

/// The DType of a C++ type.
template <typename T>
inline constexpr DType dtype_of = detail::DTypeOf<T>::value;

}  // namespace tessera

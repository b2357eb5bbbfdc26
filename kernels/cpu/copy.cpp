// SPDX-License-Identifier: Apache-2.0
// Copies walk rows: the last dim of both sides in the inner loop, the leading dims by an odometer.
#include "tessera/ops/copy.hpp"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

template <typename To, typename From>
To converted(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_arithmetic_v<From>) {
    if constexpr (std::is_arithmetic_v<To>) {
      return static_cast<To>(value);
    } else if constexpr (std::is_same_v<From, float>) {
      return To(value);
    } else {
      return To(static_cast<double>(value));
    }
  } else {
    return converted<To>(static_cast<float>(value));
  }
}

/// A shape with adjacent dims merged where both sides allow it.
struct Walk {
  Shape shape, from, to;
};

Walk merged(const TensorView& x, const TensorView& y) {
  Walk walk;
  for (int d = 0; d < x.shape.rank(); ++d) {
    if (x.shape[d] == 1) continue;
    const int last = walk.shape.rank() - 1;
    if (last >= 0 && walk.from[last] == x.strides[d] * x.shape[d] &&
        walk.to[last] == y.strides[d] * x.shape[d]) {
      walk.shape[last] *= x.shape[d];
      walk.from[last] = x.strides[d];
      walk.to[last] = y.strides[d];
    } else {
      walk.shape.push_back(x.shape[d]);
      walk.from.push_back(x.strides[d]);
      walk.to.push_back(y.strides[d]);
    }
  }
  if (walk.shape.rank() == 0) walk = {{1}, {1}, {1}};
  return walk;
}

template <typename From, typename To>
void copy_run(const From* x, std::int64_t x_stride, To* y, std::int64_t y_stride,
              std::int64_t count) {
  if constexpr (std::is_same_v<From, To>) {
    if (x_stride == 1 && y_stride == 1) {
      std::memcpy(y, x, static_cast<std::size_t>(count) * sizeof(To));
      return;
    }
  }
  if (x_stride == 1 && y_stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = converted<To>(x[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i * y_stride] = converted<To>(x[i * x_stride]);
  }
}

template <typename From, typename To>
void copy_rows(const CopyArgs& args, const Stream& stream) {
  const Walk walk = merged(args.x, args.y);
  const int last = walk.shape.rank() - 1;
  const std::int64_t run = walk.shape[last];
  const std::int64_t rows = walk.shape.numel(0, last);
  const auto copy_part = [&](std::int64_t row, std::int64_t first, std::int64_t count) {
    std::int64_t from = 0;
    std::int64_t to = 0;
    for (int d = last - 1; d >= 0; --d) {
      from += row % walk.shape[d] * walk.from[d];
      to += row % walk.shape[d] * walk.to[d];
      row /= walk.shape[d];
    }
    copy_run(args.x.as<From>() + from + first * walk.from[last], walk.from[last],
             args.y.as<To>() + to + first * walk.to[last], walk.to[last], count);
  };
  if (rows == 1) {
    parallel_for(stream, run, 1 << 15,
                 [&](std::int64_t a, std::int64_t b) { copy_part(0, a, b - a); });
  } else {
    parallel_for(stream, rows, 1 + (1 << 15) / run, [&](std::int64_t a, std::int64_t b) {
      for (std::int64_t row = a; row < b; ++row) copy_part(row, 0, run);
    });
  }
}

}  // namespace

template <>
void copy_kernel<DeviceType::kCpu>(const CopyArgs& args, Stream& stream) {
  kernels::visit_any(args.x.dtype, [&]<typename From>() {
    if (args.y.dtype == args.x.dtype) return copy_rows<From, From>(args, stream);
    kernels::visit_any(args.y.dtype, [&]<typename To>() { copy_rows<From, To>(args, stream); });
  });
}

template <>
void fill_kernel<DeviceType::kCpu>(const FillArgs& args, Stream& stream) {
  kernels::visit_any(args.y.dtype, [&]<typename T>() {
    T value = converted<T>(args.value);
    TensorView one{&value, args.y.dtype, args.y.shape, Shape::filled(args.y.shape.rank(), 0)};
    copy_rows<T, T>({one, args.y}, stream);
  });
}

}  // namespace tessera::ops

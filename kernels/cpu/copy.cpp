// SPDX-License-Identifier: Apache-2.0
// Copies walk runs of the last dim; where the source is dense along another dim (a transpose), both
// are walked in square tiles, so that every cache line is used whole.
#include "tessera/ops/copy.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/convert.hpp"
#include "kernels/cpu/visit.hpp"
#include "kernels/cpu/walk.hpp"

namespace tessera::ops {
namespace {

constexpr std::int64_t kGrain = 1 << 15;
constexpr std::int64_t kTile = 32;

/// A dense run between any dtypes.
template <typename From, typename To>
[[gnu::always_inline]] inline void convert_run(const From* x, To* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = kernels::converted<To>(x[i]);
}

// The conversions of training, compiled for every instruction set.
TESSERA_MULTIVERSION void fast_run(const float* x, bf16* y, std::int64_t n) {
  convert_run(x, y, n);
}
TESSERA_MULTIVERSION void fast_run(const float* x, f16* y, std::int64_t n) { convert_run(x, y, n); }
TESSERA_MULTIVERSION void fast_run(const float* x, f8e4m3* y, std::int64_t n) {
  convert_run(x, y, n);
}
TESSERA_MULTIVERSION void fast_run(const float* x, f8e5m2* y, std::int64_t n) {
  convert_run(x, y, n);
}
TESSERA_MULTIVERSION void fast_run(const bf16* x, float* y, std::int64_t n) {
  convert_run(x, y, n);
}
TESSERA_MULTIVERSION void fast_run(const f16* x, float* y, std::int64_t n) { convert_run(x, y, n); }
TESSERA_MULTIVERSION void fast_run(const f8e4m3* x, float* y, std::int64_t n) {
  convert_run(x, y, n);
}
TESSERA_MULTIVERSION void fast_run(const f8e5m2* x, float* y, std::int64_t n) {
  convert_run(x, y, n);
}
TESSERA_MULTIVERSION void fast_run(const float* x, double* y, std::int64_t n) {
  convert_run(x, y, n);
}
TESSERA_MULTIVERSION void fast_run(const double* x, float* y, std::int64_t n) {
  convert_run(x, y, n);
}

template <typename From, typename To>
void dense_run(const From* x, To* y, std::int64_t count) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(y, x, static_cast<std::size_t>(count) * sizeof(To));
  } else if constexpr (requires { fast_run(x, y, count); }) {
    fast_run(x, y, count);
  } else {
    convert_run(x, y, count);
  }
}

template <typename From, typename To>
void copy_run(const From* x, std::int64_t x_stride, To* y, std::int64_t y_stride,
              std::int64_t count) {
  if (x_stride == 1 && y_stride == 1) return dense_run(x, y, count);
  if (x_stride == 0 && y_stride == 1) {
    std::fill(y, y + count, kernels::converted<To>(*x));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    y[i * y_stride] = kernels::converted<To>(x[i * x_stride]);
  }
}

/// The leading dim along which x is dense while y is dense along the last one, or -1.
int transposed_dim(const kernels::Walk<2>& walk) {
  if (walk.strides[0][walk.last()] <= 1 || walk.strides[1][walk.last()] != 1) return -1;
  for (int d = 0; d < walk.last(); ++d) {
    if (walk.strides[0][d] == 1) return d;
  }
  return -1;
}

template <typename From, typename To>
void copy_tile(const From* x, std::int64_t x_stride, To* y, std::int64_t y_stride,
               std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      y[r * y_stride + c] = kernels::converted<To>(x[c * x_stride + r]);
    }
  }
}

/// x is dense along dim `dense`, y along the last. Tiles of kTile of each; the other dims lead.
template <typename From, typename To>
void copy_transposed(const CopyArgs& args, const kernels::Walk<2>& walk, int dense,
                     const Stream& stream) {
  const int last = walk.last();
  const std::int64_t rows = walk.shape[dense];
  const std::int64_t columns = walk.run();
  const std::int64_t row_tiles = (rows + kTile - 1) / kTile;
  const std::int64_t tiles = walk.rows() / rows * row_tiles;
  parallel_for(stream, tiles, 1 + kGrain / (kTile * columns), [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t tile = a; tile < b; ++tile) {
      const std::int64_t row = tile % row_tiles * kTile;
      std::int64_t from = row;
      std::int64_t to = row * walk.strides[1][dense];
      std::int64_t rest = tile / row_tiles;
      for (int d = last - 1; d >= 0; --d) {
        if (d == dense) continue;
        from += rest % walk.shape[d] * walk.strides[0][d];
        to += rest % walk.shape[d] * walk.strides[1][d];
        rest /= walk.shape[d];
      }
      for (std::int64_t c = 0; c < columns; c += kTile) {
        copy_tile(args.x.as<From>() + from + c * walk.strides[0][last], walk.strides[0][last],
                  args.y.as<To>() + to + c, walk.strides[1][dense], std::min(kTile, rows - row),
                  std::min(kTile, columns - c));
      }
    }
  });
}

template <typename From, typename To>
void copy_all(const CopyArgs& args, const Stream& stream) {
  const auto walk = kernels::merged_walk<2>(args.x.shape, {args.x.strides, args.y.strides});
  const int dense = transposed_dim(walk);
  if (dense >= 0) return copy_transposed<From, To>(args, walk, dense, stream);
  const int last = walk.last();
  kernels::walk_runs(stream, walk, kGrain,
                     [&](const kernels::Offsets<2>& offsets, std::int64_t count) {
                       copy_run(args.x.as<From>() + offsets[0], walk.strides[0][last],
                                args.y.as<To>() + offsets[1], walk.strides[1][last], count);
                     });
}

}  // namespace

template <>
void copy_kernel<DeviceType::kCpu>(const CopyArgs& args, Stream& stream) {
  kernels::visit_any(args.x.dtype, [&]<typename From>() {
    if (args.y.dtype == args.x.dtype) return copy_all<From, From>(args, stream);
    kernels::visit_any(args.y.dtype, [&]<typename To>() { copy_all<From, To>(args, stream); });
  });
}

template <>
void fill_kernel<DeviceType::kCpu>(const FillArgs& args, Stream& stream) {
  kernels::visit_any(args.y.dtype, [&]<typename T>() {
    T value = kernels::converted<T>(args.value);
    const TensorView one{&value, args.y.dtype, args.y.shape, Shape::filled(args.y.shape.rank(), 0)};
    copy_all<T, T>({one, args.y}, stream);
  });
}

}  // namespace tessera::ops

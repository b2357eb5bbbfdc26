// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/sum.hpp"

#include <algorithm>

#include "kernels/cpu/math.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

constexpr std::int64_t kUnit = 64;     ///< columns that stay on one thread
constexpr std::int64_t kPanel = 1024;  ///< columns that are summed together
constexpr std::int64_t kRows = 64;     ///< rows whose column sums stay in the dtype

TESSERA_MULTIVERSION float block_sum(const float* x, std::int64_t n) {
  return kernels::lane_sum<float>(n, [x](std::int64_t i) { return x[i]; });
}
TESSERA_MULTIVERSION double block_sum(const double* x, std::int64_t n) {
  return kernels::lane_sum<double>(n, [x](std::int64_t i) { return x[i]; });
}
TESSERA_MULTIVERSION double block_squares(const float* x, std::int64_t n) {
  return kernels::lane_sum<double>(
      n, [x](std::int64_t i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
}
TESSERA_MULTIVERSION double block_squares(const double* x, std::int64_t n) {
  return kernels::lane_sum<double>(n, [x](std::int64_t i) { return x[i] * x[i]; });
}

template <typename T>
[[gnu::always_inline]] inline void column_sums(const T* x, std::int64_t rows, std::int64_t stride,
                                               std::int64_t count, T* y) {
  double totals[kPanel] = {};
  for (std::int64_t first = 0; first < rows; first += kRows) {
    T sums[kPanel] = {};
    for (std::int64_t row = first; row < std::min(first + kRows, rows); ++row, x += stride) {
      kernels::prefetch_run(x + stride, count);
      for (std::int64_t i = 0; i < count; ++i) sums[i] += x[i];
    }
    for (std::int64_t i = 0; i < count; ++i) totals[i] += static_cast<double>(sums[i]);
  }
  for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(totals[i]);
}
TESSERA_MULTIVERSION void columns_run(const float* x, std::int64_t rows, std::int64_t stride,
                                      std::int64_t count, float* y) {
  column_sums(x, rows, stride, count, y);
}
TESSERA_MULTIVERSION void columns_run(const double* x, std::int64_t rows, std::int64_t stride,
                                      std::int64_t count, double* y) {
  column_sums(x, rows, stride, count, y);
}

template <typename T>
void sum_rows(const SumArgs& args, const Stream& stream) {
  const std::int64_t reduced = args.x.shape[1];
  const std::int64_t blocks = args.blocks.shape[1];
  double* const parts = args.blocks.as<double>();
  const std::int64_t grain = 1 + 4 * kSumBlock / std::min(reduced, kSumBlock);
  parallel_for(stream, args.blocks.numel(), grain, [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t i = a; i < b; ++i) {
      const std::int64_t first = i % blocks * kSumBlock;
      parts[i] = static_cast<double>(block_sum(args.x.as<T>() + i / blocks * reduced + first,
                                               std::min(kSumBlock, reduced - first)));
    }
  });
  for (std::int64_t row = 0; row < args.x.shape[0]; ++row) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < blocks; ++i) sum += parts[row * blocks + i];
    args.y.as<T>()[row] = static_cast<T>(sum);
  }
}

template <typename T>
void sum_columns(const SumArgs& args, const Stream& stream) {
  const std::int64_t reduced = args.x.shape[1];
  const std::int64_t inner = args.x.shape[2];
  const std::int64_t units = (inner + kUnit - 1) / kUnit;
  parallel_for(stream, args.x.shape[0] * units, 1, [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t i = a; i < b;) {
      const std::int64_t outer = i / units;
      const std::int64_t first = i % units * kUnit;
      const std::int64_t take = std::min({b - i, units - i % units, kPanel / kUnit});
      columns_run(args.x.as<T>() + outer * reduced * inner + first, reduced, inner,
                  std::min(take * kUnit, inner - first), args.y.as<T>() + outer * inner + first);
      i += take;
    }
  });
}

}  // namespace

template <>
void sum_kernel<DeviceType::kCpu>(const SumArgs& args, Stream& stream) {
  kernels::visit_f64_f32("sum", args.x.dtype, [&]<typename T>() {
    if (args.x.shape[2] == 1) {
      sum_rows<T>(args, stream);
    } else {
      sum_columns<T>(args, stream);
    }
  });
}

template <>
void square_sum_kernel<DeviceType::kCpu>(const SquareSumArgs& args, Stream& stream) {
  const std::int64_t count = args.x.numel();
  kernels::visit_f64_f32("square_sums", args.x.dtype, [&]<typename T>() {
    parallel_for(stream, args.sums.numel(), 1, [&](std::int64_t a, std::int64_t b) {
      for (std::int64_t i = a; i < b; ++i) {
        const std::int64_t first = i * args.block;
        args.sums.as<double>()[i] =
            block_squares(args.x.as<T>() + first, std::min(args.block, count - first));
      }
    });
  });
}

}  // namespace tessera::ops

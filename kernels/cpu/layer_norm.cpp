// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/layer_norm.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/math.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

using kernels::lane_sum;

constexpr std::int64_t kUnit = 64;     ///< columns that stay on one thread
constexpr std::int64_t kPanel = 1024;  ///< columns whose weight gradients are summed together
constexpr std::int64_t kRows = 64;     ///< rows whose weight gradients are summed in the dtype

template <typename T>
[[gnu::always_inline]] inline void forward(const T* x, const T* w, const T* b, T* y, std::int64_t c,
                                           T eps, T& mean, T& rstd) {
  kernels::prefetch_run(x + c, c);
  mean = lane_sum<T>(c, [x](std::int64_t i) { return x[i]; }) / static_cast<T>(c);
  const T m = mean;
  const T variance = lane_sum<T>(c, [x, m](std::int64_t i) { return (x[i] - m) * (x[i] - m); }) /
                     static_cast<T>(c);
  rstd = T{1} / std::sqrt(variance + eps);
  const T r = rstd;
  for (std::int64_t i = 0; i < c; ++i) y[i] = (x[i] - m) * r * w[i] + b[i];
}

/// dx = rstd (dn - mean(dn) - n mean(dn n)), with n = (x - mean) rstd and dn = dy w.
template <typename T>
[[gnu::always_inline]] inline void backward(const T* x, const T* w, const T* dy, T* dx,
                                            std::int64_t c, T m, T r) {
  kernels::prefetch_run(x + c, c);
  kernels::prefetch_run(dy + c, c);
  const T mean_dn =
      lane_sum<T>(c, [=](std::int64_t i) { return dy[i] * w[i]; }) / static_cast<T>(c);
  const T mean_dn_n =
      lane_sum<T>(c, [=](std::int64_t i) { return dy[i] * w[i] * ((x[i] - m) * r); }) /
      static_cast<T>(c);
  for (std::int64_t i = 0; i < c; ++i) {
    dx[i] = r * (dy[i] * w[i] - mean_dn - (x[i] - m) * r * mean_dn_n);
  }
}

template <typename T>
[[gnu::always_inline]] inline void weight_panel(const LayerNormWeightBackwardArgs& args,
                                                std::int64_t first, std::int64_t count) {
  const std::int64_t rows = args.x.shape[0];
  const std::int64_t c = args.x.shape[1];
  double total_dw[kPanel] = {};
  double total_db[kPanel] = {};
  for (std::int64_t block = 0; block < rows; block += kRows) {
    T dw[kPanel] = {};
    T db[kPanel] = {};
    for (std::int64_t row = block; row < std::min(block + kRows, rows); ++row) {
      const T* x = args.x.as<T>() + row * c + first;
      const T* dy = args.dy.as<T>() + row * c + first;
      kernels::prefetch_run(x + c, count);
      kernels::prefetch_run(dy + c, count);
      const T m = args.mean.as<T>()[row];
      const T r = args.rstd.as<T>()[row];
      for (std::int64_t i = 0; i < count; ++i) {
        dw[i] += dy[i] * ((x[i] - m) * r);
        db[i] += dy[i];
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      total_dw[i] += static_cast<double>(dw[i]);
      total_db[i] += static_cast<double>(db[i]);
    }
  }
  T* const dweight = args.dweight.as<T>() + first;
  T* const dbias = args.dbias.as<T>() + first;
  for (std::int64_t i = 0; i < count; ++i) {
    dweight[i] = static_cast<T>(static_cast<double>(dweight[i]) + total_dw[i]);
    dbias[i] = static_cast<T>(static_cast<double>(dbias[i]) + total_db[i]);
  }
}

TESSERA_MULTIVERSION void forward_run(const float* x, const float* w, const float* b, float* y,
                                      std::int64_t c, float eps, float& m, float& r) {
  forward(x, w, b, y, c, eps, m, r);
}
TESSERA_MULTIVERSION void forward_run(const double* x, const double* w, const double* b, double* y,
                                      std::int64_t c, double eps, double& m, double& r) {
  forward(x, w, b, y, c, eps, m, r);
}
TESSERA_MULTIVERSION void backward_run(const float* x, const float* w, const float* dy, float* dx,
                                       std::int64_t c, float m, float r) {
  backward(x, w, dy, dx, c, m, r);
}
TESSERA_MULTIVERSION void backward_run(const double* x, const double* w, const double* dy,
                                       double* dx, std::int64_t c, double m, double r) {
  backward(x, w, dy, dx, c, m, r);
}
TESSERA_MULTIVERSION void panel_f32(const LayerNormWeightBackwardArgs& args, std::int64_t first,
                                    std::int64_t count) {
  weight_panel<float>(args, first, count);
}
TESSERA_MULTIVERSION void panel_f64(const LayerNormWeightBackwardArgs& args, std::int64_t first,
                                    std::int64_t count) {
  weight_panel<double>(args, first, count);
}

std::int64_t row_grain(std::int64_t width) { return 1 + (1 << 13) / width; }

}  // namespace

template <>
void layer_norm_kernel<DeviceType::kCpu>(const LayerNormArgs& args, Stream& stream) {
  const std::int64_t c = args.x.shape[1];
  kernels::visit_f64_f32("layer_norm", args.x.dtype, [&]<typename T>() {
    parallel_for(stream, args.x.shape[0], row_grain(c), [&](std::int64_t a, std::int64_t b) {
      for (std::int64_t row = a; row < b; ++row) {
        forward_run(args.x.as<T>() + row * c, args.weight.as<T>(), args.bias.as<T>(),
                    args.y.as<T>() + row * c, c, static_cast<T>(args.eps), args.mean.as<T>()[row],
                    args.rstd.as<T>()[row]);
      }
    });
  });
}

template <>
void layer_norm_backward_kernel<DeviceType::kCpu>(const LayerNormBackwardArgs& args,
                                                  Stream& stream) {
  const std::int64_t c = args.x.shape[1];
  kernels::visit_f64_f32("layer_norm", args.x.dtype, [&]<typename T>() {
    parallel_for(stream, args.x.shape[0], row_grain(c), [&](std::int64_t a, std::int64_t b) {
      for (std::int64_t row = a; row < b; ++row) {
        backward_run(args.x.as<T>() + row * c, args.weight.as<T>(), args.dy.as<T>() + row * c,
                     args.dx.as<T>() + row * c, c, args.mean.as<T>()[row], args.rstd.as<T>()[row]);
      }
    });
  });
}

template <>
void layer_norm_weight_backward_kernel<DeviceType::kCpu>(const LayerNormWeightBackwardArgs& args,
                                                         Stream& stream) {
  const std::int64_t c = args.x.shape[1];
  parallel_for(stream, (c + kUnit - 1) / kUnit, 1, [&](std::int64_t a, std::int64_t b) {
    const std::int64_t last = std::min(b * kUnit, c);
    for (std::int64_t first = a * kUnit; first < last; first += kPanel) {
      const std::int64_t count = std::min(kPanel, last - first);
      if (args.x.dtype == DType::kF64) {
        panel_f64(args, first, count);
      } else {
        panel_f32(args, first, count);
      }
    }
  });
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// Elementwise ops, LayerNorm, embedding and cross entropy in f64, one element or row at a time,
// straight from their definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "tessera/ops/activation.hpp"
#include "tessera/ops/cross_entropy.hpp"

namespace tessera::reference {

using Values = std::vector<double>;

/// The share of x that passes: 1 / (1 + e^-u) for GELU's tanh form (u in extended precision: the
/// product with e^x amplifies its rounding) and SiLU, Phi(x) for GELU; and its derivative.
struct Gate {
  long double value, slope;
};
inline Gate gate(double x, ops::Activation kind) {
  const long double v = x;
  if (kind == ops::Activation::kRelu) return {x > 0.0 ? 1.0L : 0.0L, 0.0L};
  if (kind == ops::Activation::kGeluErf) {
    return {0.5L * std::erfc(-v / std::numbers::sqrt2_v<long double>),
            std::exp(-0.5L * v * v) / std::sqrt(2.0L * std::numbers::pi_v<long double>)};
  }
  const long double scale = std::sqrt(8.0L / std::numbers::pi_v<long double>);
  const bool is_silu = kind == ops::Activation::kSilu;
  const long double u = is_silu ? v : scale * (v + 0.044715L * v * v * v);
  const long double du = is_silu ? 1.0L : scale * (1.0L + 3.0L * 0.044715L * v * v);
  const long double s = 1.0L / (1.0L + std::exp(-u));
  return {s, s * (1.0L - s) * du};
}

inline double activation(double x, ops::Activation kind) {
  return static_cast<double>(x * gate(x, kind).value);
}

inline double activation_slope(double x, ops::Activation kind) {
  const Gate g = gate(x, kind);
  return static_cast<double>(g.value + x * g.slope);
}

struct LayerNorm {
  Values y, mean, rstd;
};

/// x is rows of w.size() elements.
inline LayerNorm layer_norm(const Values& x, const Values& w, const Values& b, double eps) {
  const std::size_t width = w.size();
  LayerNorm out{Values(x.size()), {}, {}};
  for (std::size_t row = 0; row < x.size(); row += width) {
    double mean = 0.0;
    for (std::size_t i = 0; i < width; ++i) mean += x[row + i];
    mean /= static_cast<double>(width);
    double variance = 0.0;
    for (std::size_t i = 0; i < width; ++i) variance += (x[row + i] - mean) * (x[row + i] - mean);
    variance /= static_cast<double>(width);
    const double rstd = 1.0 / std::sqrt(variance + eps);
    for (std::size_t i = 0; i < width; ++i) {
      out.y[row + i] = (x[row + i] - mean) * rstd * w[i] + b[i];
    }
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
  }
  return out;
}

struct LayerNormGradient {
  Values dx, dw, db;
};

inline LayerNormGradient layer_norm_gradient(const Values& dy, const Values& x, const Values& w,
                                             const LayerNorm& forward) {
  const std::size_t width = w.size();
  LayerNormGradient out{Values(x.size()), Values(width), Values(width)};
  for (std::size_t row = 0; row < x.size(); row += width) {
    const double rstd = forward.rstd[row / width];
    double mean_dn = 0.0;
    double mean_dn_n = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      const double n = (x[row + i] - forward.mean[row / width]) * rstd;
      out.dw[i] += dy[row + i] * n;
      out.db[i] += dy[row + i];
      mean_dn += dy[row + i] * w[i] / static_cast<double>(width);
      mean_dn_n += dy[row + i] * w[i] * n / static_cast<double>(width);
    }
    for (std::size_t i = 0; i < width; ++i) {
      const double n = (x[row + i] - forward.mean[row / width]) * rstd;
      out.dx[row + i] = rstd * (dy[row + i] * w[i] - mean_dn - n * mean_dn_n);
    }
  }
  return out;
}

struct RmsNorm {
  Values y, rstd;
};

inline RmsNorm rms_norm(const Values& x, const Values& w, double eps) {
  const std::size_t width = w.size();
  RmsNorm out{Values(x.size()), {}};
  for (std::size_t row = 0; row < x.size(); row += width) {
    double square = 0.0;
    for (std::size_t i = 0; i < width; ++i) square += x[row + i] * x[row + i];
    out.rstd.push_back(1.0 / std::sqrt(square / static_cast<double>(width) + eps));
    for (std::size_t i = 0; i < width; ++i) out.y[row + i] = x[row + i] * out.rstd.back() * w[i];
  }
  return out;
}

struct RmsNormGradient {
  Values dx, dw;
};

inline RmsNormGradient rms_norm_gradient(const Values& dy, const Values& x, const Values& w,
                                         const RmsNorm& forward) {
  const std::size_t width = w.size();
  RmsNormGradient out{Values(x.size()), Values(width)};
  for (std::size_t row = 0; row < x.size(); row += width) {
    const double rstd = forward.rstd[row / width];
    double mean = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      out.dw[i] += dy[row + i] * x[row + i] * rstd;
      mean += dy[row + i] * w[i] * x[row + i] * rstd / static_cast<double>(width);
    }
    for (std::size_t i = 0; i < width; ++i) {
      out.dx[row + i] = rstd * (dy[row + i] * w[i] - x[row + i] * rstd * mean);
    }
  }
  return out;
}

/// log(sum(e^x)) of one row.
inline double log_sum_exp(const double* x, std::size_t count) {
  const double most = *std::max_element(x, x + count);
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) sum += std::exp(x[i] - most);
  return most + std::log(sum);
}

struct CrossEntropy {
  Values losses, lse, gradient;  ///< the gradient of the sum of the losses
};

inline CrossEntropy cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets,
                                  const ops::CrossEntropyOptions& options) {
  CrossEntropy out;
  if (targets.empty()) return out;
  const std::size_t vocabulary = logits.size() / targets.size();
  const double cap = options.soft_cap;
  const double smoothing = options.label_smoothing;
  for (std::size_t n = 0; n < targets.size(); ++n) {
    Values row, slope;
    for (std::size_t v = 0; v < vocabulary; ++v) {
      const double x = logits[n * vocabulary + v];
      const double t = cap > 0.0 ? std::tanh(x / cap) : 0.0;
      row.push_back(cap > 0.0 ? cap * t : x);
      slope.push_back(1.0 - t * t);
    }
    const double lse = log_sum_exp(row.data(), vocabulary);
    out.lse.push_back(lse);
    out.losses.push_back(0.0);
    for (std::size_t v = 0; v < vocabulary; ++v) {
      // The target distribution: (1 - s) on the target, s / V everywhere.
      const double onehot = static_cast<std::size_t>(targets[n]) == v ? 1.0 : 0.0;
      const double q = (1.0 - smoothing) * onehot + smoothing / static_cast<double>(vocabulary);
      const bool counts = targets[n] != options.ignore_index;
      if (counts) out.losses.back() += q * (lse - row[v]);
      out.gradient.push_back(counts ? slope[v] * (std::exp(row[v] - lse) - q) : 0.0);
    }
  }
  return out;
}

}  // namespace tessera::reference

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

namespace tessera::reference {

using Values = std::vector<double>;

/// The argument of GELU's tanh in extended precision: the product with e^x amplifies its rounding.
inline long double gelu_argument(double x) {
  const long double v = x;
  return std::sqrt(2.0L / std::numbers::pi_v<long double>) * (v + 0.044715L * v * v * v);
}

/// 0.5 x (1 + tanh t), with 1 + tanh t = 2 / (1 + e^-2t), which does not cancel.
inline double gelu(double x) {
  return static_cast<double>(x / (1.0L + std::exp(-2.0L * gelu_argument(x))));
}

inline double gelu_gradient(double x) {
  const long double v = x;
  const long double half = 1.0L / (1.0L + std::exp(-2.0L * gelu_argument(x)));
  const long double slope =
      std::sqrt(2.0L / std::numbers::pi_v<long double>) * (1.0L + 3.0L * 0.044715L * v * v);
  return static_cast<double>(half + 2.0L * v * half * (1.0L - half) * slope);
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
                                  std::int32_t ignored) {
  CrossEntropy out;
  if (targets.empty()) return out;
  const std::size_t vocabulary = logits.size() / targets.size();
  for (std::size_t n = 0; n < targets.size(); ++n) {
    const double* row = logits.data() + n * vocabulary;
    const double lse = log_sum_exp(row, vocabulary);
    const bool counts = targets[n] != ignored;
    out.lse.push_back(lse);
    out.losses.push_back(counts ? lse - row[targets[n]] : 0.0);
    for (std::size_t v = 0; v < vocabulary; ++v) {
      const double onehot = static_cast<std::size_t>(targets[n]) == v ? 1.0 : 0.0;
      out.gradient.push_back(counts ? std::exp(row[v] - lse) - onehot : 0.0);
    }
  }
  return out;
}

}  // namespace tessera::reference

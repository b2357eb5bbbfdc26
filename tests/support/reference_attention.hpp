// SPDX-License-Identifier: Apache-2.0
// Attention in f64 with all scores stored: p = softmax(scale q k^T + mask), o = p v, and its
// gradient by the chain rule: dv = p^T do, dp = do v^T, ds = p (dp - rowsum(p dp)),
// dq = scale ds k, dk = scale ds^T q.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace tessera::reference {

/// q, out and their gradients [B, T, H, D]; k, v and theirs [B, S, G, D]; lse [B, H, T].
struct AttentionSizes {
  std::size_t b, t, s, h, g, d;
  bool is_causal;
  double scale;

  std::size_t q(std::size_t ib, std::size_t it, std::size_t ih) const {
    return ((ib * t + it) * h + ih) * d;
  }
  /// The key head of query head `ih`.
  std::size_t k(std::size_t ib, std::size_t is, std::size_t ih) const {
    return ((ib * s + is) * g + ih / (h / g)) * d;
  }
};

struct AttentionOutputs {
  std::vector<double> out, lse;
};
struct AttentionGradients {
  std::vector<double> dq, dk, dv;
};

inline double dot(const double* x, const double* y, std::size_t d) {
  double sum = 0.0;
  for (std::size_t c = 0; c < d; ++c) sum += x[c] * y[c];
  return sum;
}

/// The probabilities of one query over all keys, and the log of their sum before normalising. A
/// query that sees nothing has probabilities 0 and -inf.
inline std::vector<double> attention_row(const AttentionSizes& z, const std::vector<double>& q,
                                         const std::vector<double>& k, std::size_t b, std::size_t t,
                                         std::size_t h, double& lse) {
  std::vector<double> p(z.s, 0.0);
  const std::size_t seen = z.is_causal ? std::min(t + 1, z.s) : z.s;
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t j = 0; j < seen; ++j) {
    p[j] = z.scale * dot(&q[z.q(b, t, h)], &k[z.k(b, j, h)], z.d);
    most = std::max(most, p[j]);
  }
  double total = 0.0;
  for (std::size_t j = 0; j < seen && std::isfinite(most); ++j) total += std::exp(p[j] - most);
  lse = total > 0.0 ? most + std::log(total) : -std::numeric_limits<double>::infinity();
  for (std::size_t j = 0; j < seen; ++j) p[j] = total > 0.0 ? std::exp(p[j] - lse) : 0.0;
  return p;
}

inline AttentionOutputs attention(const AttentionSizes& z, const std::vector<double>& q,
                                  const std::vector<double>& k, const std::vector<double>& v) {
  AttentionOutputs y{std::vector<double>(q.size()), std::vector<double>(z.b * z.h * z.t)};
  for (std::size_t b = 0; b < z.b; ++b) {
    for (std::size_t h = 0; h < z.h; ++h) {
      for (std::size_t t = 0; t < z.t; ++t) {
        const auto p = attention_row(z, q, k, b, t, h, y.lse[(b * z.h + h) * z.t + t]);
        for (std::size_t j = 0; j < z.s; ++j) {
          for (std::size_t c = 0; c < z.d; ++c) {
            y.out[z.q(b, t, h) + c] += p[j] * v[z.k(b, j, h) + c];
          }
        }
      }
    }
  }
  return y;
}

inline AttentionGradients attention_backward(const AttentionSizes& z, const std::vector<double>& q,
                                             const std::vector<double>& k,
                                             const std::vector<double>& v,
                                             const std::vector<double>& dout) {
  AttentionGradients y{std::vector<double>(q.size()), std::vector<double>(k.size()),
                       std::vector<double>(v.size())};
  for (std::size_t b = 0; b < z.b; ++b) {
    for (std::size_t h = 0; h < z.h; ++h) {
      for (std::size_t t = 0; t < z.t; ++t) {
        double lse = 0.0;
        const auto p = attention_row(z, q, k, b, t, h, lse);
        const std::size_t iq = z.q(b, t, h);
        std::vector<double> dp(z.s);
        for (std::size_t j = 0; j < z.s; ++j) dp[j] = dot(&dout[iq], &v[z.k(b, j, h)], z.d);
        const double mean = dot(p.data(), dp.data(), z.s);
        for (std::size_t j = 0; j < z.s; ++j) {
          const std::size_t ik = z.k(b, j, h);
          const double ds = z.scale * p[j] * (dp[j] - mean);
          for (std::size_t c = 0; c < z.d; ++c) {
            y.dv[ik + c] += p[j] * dout[iq + c];
            y.dq[iq + c] += ds * k[ik + c];
            y.dk[ik + c] += ds * q[iq + c];
          }
        }
      }
    }
  }
  return y;
}

}  // namespace tessera::reference

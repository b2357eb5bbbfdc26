// SPDX-License-Identifier: Apache-2.0
// All tensors are cut into chunks of one size, and the list of chunks is shared out over the
// threads.
#include "tessera/ops/adamw.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

constexpr std::int64_t kChunk = 1 << 15;

template <typename T>
struct Constants {
  T decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, root_correction, eps, scale;
};

template <typename T>
[[gnu::always_inline]] inline void update(T* p, const T* g, T* m, T* v, const Constants<T>& c,
                                          std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T gradient = c.scale * g[i];
    m[i] = c.beta1 * m[i] + c.one_minus_beta1 * gradient;
    v[i] = c.beta2 * v[i] + c.one_minus_beta2 * gradient * gradient;
    p[i] = p[i] * c.decay - c.step_size * m[i] / (std::sqrt(v[i]) * c.root_correction + c.eps);
  }
}

TESSERA_MULTIVERSION void update_run(float* p, const float* g, float* m, float* v,
                                     const Constants<float>& c, std::int64_t n) {
  update(p, g, m, v, c, n);
}
TESSERA_MULTIVERSION void update_run(double* p, const double* g, double* m, double* v,
                                     const Constants<double>& c, std::int64_t n) {
  update(p, g, m, v, c, n);
}

template <typename T>
Constants<T> constants(const AdamWArgs& args, double weight_decay) {
  const auto t = static_cast<double>(args.step);
  return {static_cast<T>(1.0 - args.lr * weight_decay),
          static_cast<T>(args.beta1),
          static_cast<T>(1.0 - args.beta1),
          static_cast<T>(args.beta2),
          static_cast<T>(1.0 - args.beta2),
          static_cast<T>(args.lr / (1.0 - std::pow(args.beta1, t))),
          static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(args.beta2, t))),
          static_cast<T>(args.eps),
          static_cast<T>(args.grad_scale)};
}

struct Piece {
  const AdamWTensor* tensor;
  std::int64_t first;
  std::int64_t count;
};

}  // namespace

template <>
void adamw_kernel<DeviceType::kCpu>(const AdamWArgs& args, Stream& stream) {
  std::vector<Piece> pieces;
  for (const AdamWTensor& tensor : args.tensors) {
    const std::int64_t count = tensor.parameter.numel();
    for (std::int64_t i = 0; i < count; i += kChunk) {
      pieces.push_back({&tensor, i, std::min(kChunk, count - i)});
    }
  }
  parallel_for(stream, static_cast<std::int64_t>(pieces.size()), 1,
               [&](std::int64_t a, std::int64_t b) {
                 for (std::int64_t i = a; i < b; ++i) {
                   const Piece& piece = pieces[static_cast<std::size_t>(i)];
                   const AdamWTensor& t = *piece.tensor;
                   kernels::visit_f64_f32("adamw", t.parameter.dtype, [&]<typename T>() {
                     update_run(t.parameter.as<T>() + piece.first, t.gradient.as<T>() + piece.first,
                                t.m.as<T>() + piece.first, t.v.as<T>() + piece.first,
                                constants<T>(args, t.weight_decay), piece.count);
                   });
                 }
               });
}

}  // namespace tessera::ops

// SPDX-License-Identifier: Apache-2.0
// All tensors are cut into chunks of one size; a thread takes a range of the chunks of all tensors
// in a row, so that many small tensors and one large one share out alike.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/vector-inl.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/adamw.hpp"

#ifndef TESSERA_KERNELS_CPU_ADAMW_ONCE_
#define TESSERA_KERNELS_CPU_ADAMW_ONCE_
namespace tessera::ops {
namespace {

template <typename T>
struct Constants {
  T decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, root_correction, eps, scale;
};

}  // namespace
}  // namespace tessera::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::ops::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace vec = kernels::HWY_NAMESPACE;

template <typename T>
void update(T* p, const T* g, T* m, T* v, const Constants<T>& c, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const T* const in[] = {p, g, m, v};
  T* const out[] = {p, m, v};
  const auto decay = hn::Set(d, c.decay);
  const auto beta1 = hn::Set(d, c.beta1);
  const auto new1 = hn::Set(d, c.one_minus_beta1);
  const auto beta2 = hn::Set(d, c.beta2);
  const auto new2 = hn::Set(d, c.one_minus_beta2);
  const auto step_size = hn::Set(d, c.step_size);
  const auto correction = hn::Set(d, c.root_correction);
  const auto eps = hn::Set(d, c.eps);
  const auto scale = hn::Set(d, c.scale);
  vec::map_vectors(d, count, in, out, [&](auto& x, auto& y) {
    const auto gradient = hn::Mul(scale, x[1]);
    const auto first = hn::MulAdd(beta1, x[2], hn::Mul(new1, gradient));
    const auto second = hn::MulAdd(beta2, x[3], hn::Mul(hn::Mul(new2, gradient), gradient));
    const auto root = hn::MulAdd(hn::Sqrt(second), correction, eps);
    y[0] = hn::NegMulAdd(step_size, hn::Div(first, root), hn::Mul(x[0], decay));
    y[1] = first;
    y[2] = second;
  });
}

void update_f32(float* p, const float* g, float* m, float* v, const Constants<float>& c,
                std::int64_t n) {
  update(p, g, m, v, c, n);
}
void update_f64(double* p, const double* g, double* m, double* v, const Constants<double>& c,
                std::int64_t n) {
  update(p, g, m, v, c, n);
}

}  // namespace
}  // namespace tessera::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::ops {
namespace {

HWY_EXPORT(update_f32);
HWY_EXPORT(update_f64);

constexpr std::int64_t kChunk = 1 << 15;

void update_run(float* p, const float* g, float* m, float* v, const Constants<float>& c,
                std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(update_f32)(p, g, m, v, c, n);
}
void update_run(double* p, const double* g, double* m, double* v, const Constants<double>& c,
                std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(update_f64)(p, g, m, v, c, n);
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

void update_range(const AdamWArgs& args, const AdamWTensor& t, std::int64_t first,
                  std::int64_t last) {
  kernels::visit_f64_f32("adamw", t.parameter.dtype, [&]<typename T>() {
    update_run(t.parameter.as<T>() + first, t.gradient.as<T>() + first, t.m.as<T>() + first,
               t.v.as<T>() + first, constants<T>(args, t.weight_decay), last - first);
  });
}

std::int64_t chunks_of(const AdamWTensor& t) { return (t.parameter.numel() + kChunk - 1) / kChunk; }

}  // namespace

template <>
void adamw_kernel<DeviceType::kCpu>(const AdamWArgs& args, Stream& stream) {
  std::int64_t chunks = 0;
  for (const AdamWTensor& tensor : args.tensors) chunks += chunks_of(tensor);
  parallel_for(stream, chunks, 1, [&](std::int64_t first, std::int64_t last) {
    std::int64_t before = 0;  // chunks of the tensors that were passed
    for (const AdamWTensor& tensor : args.tensors) {
      const std::int64_t own = chunks_of(tensor);
      const std::int64_t from = std::max(first, before) - before;
      const std::int64_t to = std::min(last, before + own) - before;
      if (from < to) {
        update_range(args, tensor, from * kChunk, std::min(to * kChunk, tensor.parameter.numel()));
      }
      before += own;
    }
  });
}

}  // namespace tessera::ops
#endif

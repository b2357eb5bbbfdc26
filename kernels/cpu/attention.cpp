// SPDX-License-Identifier: Apache-2.0
// Blocks of 32 queries against blocks of 64 keys. Keys and values of a block are packed transposed
// where the inner loop runs over keys, so that every inner loop is contiguous. Forward: a query
// block owns its output. Backward: one task owns a key head's dk and dv and all query heads on it,
// walking key blocks and then query blocks in order; so the result does not depend on the thread
// count.
#include "tessera/ops/attention.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cpu/math.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"

namespace tessera::ops {
namespace {

constexpr std::int64_t kQueries = 32;
constexpr std::int64_t kKeys = 64;

/// Rows of one head: row t at data + t * stride.
template <typename T>
struct Head {
  T* data;
  std::int64_t stride;
  T* row(std::int64_t t) const { return data + t * stride; }
};

template <typename T>
Head<T> head(const TensorView& x, std::int64_t b, std::int64_t h) {
  return {x.as<T>() + b * x.strides[0] + h * x.strides[2], x.strides[1]};
}

/// out[d][j] = rows[first + j][d], zero beyond count.
template <typename T>
void pack_transposed(Head<T> rows, std::int64_t first, std::int64_t count, std::int64_t d, T* out) {
  for (std::int64_t i = 0; i < d; ++i) {
    for (std::int64_t j = 0; j < count; ++j) out[i * kKeys + j] = rows.row(first + j)[i];
    for (std::int64_t j = count; j < kKeys; ++j) out[i * kKeys + j] = T{0};
  }
}

/// out[j] = sum over i of x[i] * columns[i][j], for kKeys columns.
template <typename T>
[[gnu::always_inline]] inline void row_times(const T* x, const T* columns, std::int64_t d, T* out) {
  T sums[kKeys] = {};
  for (std::int64_t i = 0; i < d; ++i) {
    const T factor = x[i];
    for (std::int64_t j = 0; j < kKeys; ++j) {
      sums[j] = std::fma(factor, columns[i * kKeys + j], sums[j]);
    }
  }
  for (std::int64_t j = 0; j < kKeys; ++j) out[j] = sums[j];
}

template <typename T>
[[gnu::always_inline]] inline void add_scaled(T factor, const T* x, T* y, std::int64_t d) {
  for (std::int64_t i = 0; i < d; ++i) y[i] = std::fma(factor, x[i], y[i]);
}

std::int64_t visible(AttentionMask mask, std::int64_t query, std::int64_t keys) {
  return mask == AttentionMask::kCausal ? std::min(query + 1, keys) : keys;
}

template <typename T>
struct ForwardTask {
  Head<T> q, k, v, out;
  T* lse;
  std::int64_t t, s, d;
  AttentionMask mask;
  T scale;
};

/// One block of queries; workspace: kKeys * d.
template <typename T>
[[gnu::always_inline]] inline void forward_block(const ForwardTask<T>& task,
                                                 std::int64_t first_query, T* packed) {
  const std::int64_t queries = std::min(kQueries, task.t - first_query);
  const std::int64_t d = task.d;
  T most[kQueries];
  T total[kQueries] = {};
  for (std::int64_t i = 0; i < queries; ++i) {
    most[i] = -INFINITY;
    std::fill(task.out.row(first_query + i), task.out.row(first_query + i) + d, T{0});
  }
  const std::int64_t last_key = visible(task.mask, first_query + queries - 1, task.s);
  for (std::int64_t key = 0; key < last_key; key += kKeys) {
    const std::int64_t keys = std::min(kKeys, task.s - key);
    pack_transposed(task.k, key, keys, d, packed);
    for (std::int64_t i = 0; i < queries; ++i) {
      const std::int64_t query = first_query + i;
      const std::int64_t seen = std::min(visible(task.mask, query, task.s) - key, keys);
      if (seen <= 0) continue;
      T scores[kKeys];
      row_times(task.q.row(query), packed, d, scores);
      for (std::int64_t j = 0; j < kKeys; ++j) {
        scores[j] = j < seen ? scores[j] * task.scale : -INFINITY;
      }
      const T block_most = kernels::lane_max(scores, kKeys);
      const T new_most = block_most > most[i] ? block_most : most[i];
      if (new_most == -INFINITY) continue;
      for (std::int64_t j = 0; j < kKeys; ++j) scores[j] = kernels::fast_exp(scores[j] - new_most);
      const T correction = kernels::fast_exp(most[i] - new_most);
      total[i] = total[i] * correction +
                 kernels::lane_sum<T>(kKeys, [&scores](std::int64_t j) { return scores[j]; });
      most[i] = new_most;
      T* out = task.out.row(query);
      for (std::int64_t c = 0; c < d; ++c) out[c] *= correction;
      for (std::int64_t j = 0; j < seen; ++j) add_scaled(scores[j], task.v.row(key + j), out, d);
    }
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    T* out = task.out.row(first_query + i);
    const T inverse = total[i] > T{0} ? T{1} / total[i] : T{0};
    for (std::int64_t c = 0; c < d; ++c) out[c] *= inverse;
    task.lse[first_query + i] = total[i] > T{0} ? most[i] + std::log(total[i]) : -INFINITY;
  }
}

TESSERA_MULTIVERSION void forward_run(const ForwardTask<float>& task, std::int64_t query,
                                      float* packed) {
  forward_block(task, query, packed);
}
TESSERA_MULTIVERSION void forward_run(const ForwardTask<double>& task, std::int64_t query,
                                      double* packed) {
  forward_block(task, query, packed);
}

template <typename T>
void forward(const AttentionArgs& args, const Stream& stream) {
  const Shape& shape = args.q.shape;
  const std::int64_t heads = shape[2];
  const std::int64_t group = heads / args.k.shape[2];
  const std::int64_t blocks = (shape[1] + kQueries - 1) / kQueries;
  const std::int64_t tasks = shape[0] * heads * blocks;
  const std::int64_t d = shape[3];
  std::atomic<std::int64_t> slot{0};
  parallel_for(stream, tasks, 1, [&](std::int64_t a, std::int64_t b) {
    T* packed = static_cast<T*>(args.workspace) + slot.fetch_add(1) * kKeys * d;
    for (std::int64_t i = a; i < b; ++i) {
      const std::int64_t h = i / blocks % heads;
      const std::int64_t n = i / blocks / heads;
      const ForwardTask<T> task{head<T>(args.q, n, h),
                                head<T>(args.k, n, h / group),
                                head<T>(args.v, n, h / group),
                                head<T>(args.out, n, h),
                                args.lse.as<T>() + (n * heads + h) * shape[1],
                                shape[1],
                                args.k.shape[1],
                                d,
                                args.mask,
                                static_cast<T>(args.scale)};
      forward_run(task, i % blocks * kQueries, packed);
    }
  });
}

template <typename T>
struct BackwardTask {
  Head<T> q, k, v, out, dout, dq, dk, dv;
  const T* lse;
  T* delta;  ///< [T]: rowsum(dout * out)
  std::int64_t t, s, d;
  AttentionMask mask;
  T scale;
  bool is_first_query_head;  ///< overwrite dk and dv, else add
};

/// One key block of one query head; packed: 2 * kKeys * d (k and v transposed).
template <typename T>
[[gnu::always_inline]] inline void backward_keys(const BackwardTask<T>& task, std::int64_t key,
                                                 T* packed) {
  const std::int64_t d = task.d;
  const std::int64_t keys = std::min(kKeys, task.s - key);
  T* packed_v = packed + kKeys * d;
  pack_transposed(task.k, key, keys, d, packed);
  pack_transposed(task.v, key, keys, d, packed_v);
  for (std::int64_t j = 0; j < keys && task.is_first_query_head; ++j) {
    std::fill(task.dk.row(key + j), task.dk.row(key + j) + d, T{0});
    std::fill(task.dv.row(key + j), task.dv.row(key + j) + d, T{0});
  }
  const std::int64_t first_query = task.mask == AttentionMask::kCausal ? key : 0;
  for (std::int64_t query = first_query; query < task.t; ++query) {
    const std::int64_t seen = std::min(visible(task.mask, query, task.s) - key, keys);
    const T lse = task.lse[query];
    if (seen <= 0 || lse == -INFINITY) continue;
    const T* q = task.q.row(query);
    const T* dout = task.dout.row(query);
    T p[kKeys];
    T ds[kKeys];
    row_times(q, packed, d, p);
    row_times(dout, packed_v, d, ds);
    const T delta = task.delta[query];
    for (std::int64_t j = 0; j < kKeys; ++j) {
      p[j] = j < seen ? kernels::fast_exp(p[j] * task.scale - lse) : T{0};
      ds[j] = p[j] * (ds[j] - delta) * task.scale;
    }
    T* dq = task.dq.row(query);
    for (std::int64_t j = 0; j < seen; ++j) {
      add_scaled(p[j], dout, task.dv.row(key + j), d);
      add_scaled(ds[j], q, task.dk.row(key + j), d);
      add_scaled(ds[j], static_cast<const T*>(task.k.row(key + j)), dq, d);
    }
  }
}

template <typename T>
[[gnu::always_inline]] inline void backward_head(const BackwardTask<T>& task, T* packed) {
  for (std::int64_t query = 0; query < task.t; ++query) {
    const T* out = task.out.row(query);
    const T* dout = task.dout.row(query);
    task.delta[query] =
        kernels::lane_sum<T>(task.d, [=](std::int64_t c) { return out[c] * dout[c]; });
    std::fill(task.dq.row(query), task.dq.row(query) + task.d, T{0});
  }
  for (std::int64_t key = 0; key < task.s; key += kKeys) backward_keys(task, key, packed);
}

TESSERA_MULTIVERSION void backward_run(const BackwardTask<float>& task, float* packed) {
  backward_head(task, packed);
}
TESSERA_MULTIVERSION void backward_run(const BackwardTask<double>& task, double* packed) {
  backward_head(task, packed);
}

template <typename T>
void backward(const AttentionBackwardArgs& args, const Stream& stream) {
  const Shape& shape = args.q.shape;
  const std::int64_t heads = shape[2];
  const std::int64_t key_heads = args.k.shape[2];
  const std::int64_t group = heads / key_heads;
  const std::int64_t tasks = shape[0] * key_heads;
  const std::int64_t d = shape[3];
  std::atomic<std::int64_t> slot{0};
  parallel_for(stream, tasks, 1, [&](std::int64_t a, std::int64_t b) {
    T* packed = static_cast<T*>(args.workspace) + slot.fetch_add(1) * (2 * kKeys * d + shape[1]);
    T* delta = packed + 2 * kKeys * d;
    for (std::int64_t i = a; i < b; ++i) {
      const std::int64_t g = i % key_heads;
      const std::int64_t n = i / key_heads;
      for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
        const BackwardTask<T> task{head<T>(args.q, n, h),
                                   head<T>(args.k, n, g),
                                   head<T>(args.v, n, g),
                                   head<T>(args.out, n, h),
                                   head<T>(args.dout, n, h),
                                   head<T>(args.dq, n, h),
                                   head<T>(args.dk, n, g),
                                   head<T>(args.dv, n, g),
                                   args.lse.as<T>() + (n * heads + h) * shape[1],
                                   delta,
                                   shape[1],
                                   args.k.shape[1],
                                   d,
                                   args.mask,
                                   static_cast<T>(args.scale),
                                   h == g * group};
        backward_run(task, packed);
      }
    }
  });
}

}  // namespace

template <>
std::size_t attention_workspace_bytes<DeviceType::kCpu>(const AttentionArgs& args,
                                                        const Stream& stream) {
  return static_cast<std::size_t>(stream.threads() * kKeys * args.q.shape[3]) *
         size_of(args.q.dtype);
}

template <>
void attention_kernel<DeviceType::kCpu>(const AttentionArgs& args, Stream& stream) {
  kernels::visit_f64_f32("attention", args.q.dtype,
                         [&]<typename T>() { forward<T>(args, stream); });
}

template <>
std::size_t attention_backward_workspace_bytes<DeviceType::kCpu>(const AttentionBackwardArgs& args,
                                                                 const Stream& stream) {
  return static_cast<std::size_t>(stream.threads() *
                                  (2 * kKeys * args.q.shape[3] + args.q.shape[1])) *
         size_of(args.q.dtype);
}

template <>
void attention_backward_kernel<DeviceType::kCpu>(const AttentionBackwardArgs& args,
                                                 Stream& stream) {
  kernels::visit_f64_f32("attention", args.q.dtype,
                         [&]<typename T>() { backward<T>(args, stream); });
}

}  // namespace tessera::ops

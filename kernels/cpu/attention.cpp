// SPDX-License-Identifier: Apache-2.0
// Blocks of 64 queries against blocks of 64 keys. Scores are kept transposed, [keys][queries], so
// that the softmax runs down columns without crossing lanes, and the block products take the scores
// as they are. Forward: one task per (batch, head, four query blocks). Backward: one task per
// (batch, key head), which owns dk and dv, walks its query heads, query blocks and key blocks in
// order. So no bit depends on the thread count.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "kernels/cpu/gemm_tile-inl.hpp"
#include "kernels/cpu/visit.hpp"
#include "tessera/core/parallel_for.hpp"
#include "tessera/ops/attention.hpp"

#ifndef TESSERA_KERNELS_CPU_ATTENTION_ONCE_
#define TESSERA_KERNELS_CPU_ATTENTION_ONCE_
namespace tessera::kernels {

inline constexpr std::size_t kBlock = 64;         ///< queries and keys of a block
inline constexpr std::size_t kBlocksPerTask = 4;  ///< query blocks that share a copy of the keys

/// Head sizes are padded with zeros to whole vectors of every target.
inline std::size_t padded(std::int64_t d) { return (static_cast<std::size_t>(d) + 15) / 16 * 16; }

/// Rows of one head: row t at data + t * stride.
template <typename T>
struct Head {
  T* data;
  std::int64_t stride;
  T* row(std::size_t t) const { return data + static_cast<std::int64_t>(t) * stride; }
};

template <typename T>
struct AttentionTask {
  Head<T> q, k, v, out;
  T* lse;  ///< [T]
  std::size_t t, s, d;
  bool is_causal;
  T scale;
  T* workspace;
};

template <typename T>
struct AttentionForwardTask : AttentionTask<T> {
  std::size_t first_query, past_query;  ///< at most kBlocksPerTask blocks
};

/// One query head of a key head.
template <typename T>
struct AttentionBackwardTask : AttentionTask<T> {
  Head<T> dout, dq, dk, dv;
  bool is_first_of_group, is_last_of_group;
};

/// Per query block q transposed, sums and three numbers a query; a block of k, v and scores.
inline std::size_t query_elements(std::size_t width) { return (2 * width + 3) * kBlock; }
inline std::size_t forward_elements(std::int64_t d) {
  return kBlocksPerTask * query_elements(padded(d)) + (2 * padded(d) + kBlock) * kBlock;
}
/// Copies of k and v, sums of dk and dv over all keys, and blocks.
inline std::size_t backward_elements(std::int64_t s, std::int64_t d) {
  return 4 * padded(d) * static_cast<std::size_t>(s) + (5 * padded(d) + 2 * kBlock) * kBlock +
         2 * kBlock;
}

}  // namespace tessera::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

/// exp for x up to 1, to about 1 ulp: 0 below -87 in f32, and NaN where x is (Highway's own gives 0
/// there). f32: 2^n e^r with |r| <= ln(2)/2 and Cephes' polynomial.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exponential(D d, V x) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4) {
    const hn::RebindToSigned<D> di;
    const auto magic = hn::Set(d, 12582912.0F);  // 1.5 * 2^23: rounds to an integer
    const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), magic);
    const auto n = hn::Sub(shifted, magic);
    auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x);
    r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
    auto p = hn::Set(d, 1.9875691500e-4F);
    for (const float c : {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F,
                          5.0000001201e-1F, 1.0F, 1.0F}) {
      p = hn::MulAdd(p, r, hn::Set(d, c));
    }
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
    const auto y = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0F)), y);
  } else {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
  }
}

/// `rows` rows of a head, padded to `width` columns.
template <typename T>
void copy_rows(Head<T> from, std::size_t first, std::size_t rows, std::size_t d, std::size_t width,
               T* to) {
  for (std::size_t i = 0; i < rows; ++i, to += width) {
    std::copy_n(from.row(first + i), d, to);
    std::fill(to + d, to + width, T{0});
  }
}

/// y [kBlock, width] transposed: y_transposed [width, kBlock].
template <typename T>
void transpose_block(const T* y, std::size_t width, T* y_transposed) {
  transpose(y, width, kBlock, width, y_transposed, kBlock);
}

/// x *= factor.
template <typename T>
void scale_elements(T* x, std::size_t count, T factor) {
  const hn::ScalableTag<T> d;
  const auto f = hn::Set(d, factor);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, x + i);
  }
}

/// Which keys of a block the queries of a block see.
struct BlockMask {
  bool is_causal;
  std::size_t first_query, first_key, keys;

  /// Leading keys of the block that query `query` of the block sees.
  std::size_t seen(std::size_t query) const {
    if (!is_causal) return keys;
    const std::size_t past = first_query + query + 1;
    return past <= first_key ? 0 : std::min(keys, past - first_key);
  }
  /// First query of the block that sees key `key` of the block.
  std::size_t first_seeing(std::size_t key) const {
    return is_causal && first_key + key > first_query ? first_key + key - first_query : 0;
  }
  bool hides_any() const { return is_causal && first_key + keys > first_query + 1; }
};

/// scores [keys, queries] = k q^T; only where some query of a tile's width sees the key.
template <class D, typename T = hn::TFromD<D>>
void score_block(D d, const BlockMask& mask, std::size_t width, const T* k, const T* q_transposed,
                 T* scores) {
  const std::size_t step = kTileVectors * hn::Lanes(d);
  for (std::size_t query = 0; query < kBlock; query += step) {
    multiply(d, mask.seen(query + step - 1), step, width, Left<T>{k, width, 1},
             Right<T>{q_transposed + query, kBlock}, Target<T>{scores + query, kBlock}, Into::kSet);
  }
}

/// out [queries, width] = scores^T x or added to, x [keys, width].
template <class D, typename T = hn::TFromD<D>>
void weigh_rows(D d, const BlockMask& mask, std::size_t queries, std::size_t width, const T* scores,
                const T* x, T* out, Into into) {
  for (std::size_t i = 0; i < queries; i += kTileRows) {
    const std::size_t rows = std::min(kTileRows, queries - i);
    multiply(d, rows, width, mask.seen(i + rows - 1), Left<T>{scores + i, 1, kBlock},
             Right<T>{x, width}, Target<T>{out + i * width, width}, into);
  }
}

/// sums [keys, width] += scores y, y [queries, width].
template <class D, typename T = hn::TFromD<D>>
void add_to_keys(D d, const BlockMask& mask, std::size_t queries, std::size_t width,
                 const T* scores, const T* y, T* sums) {
  for (std::size_t j = 0; j < mask.keys; j += kTileRows) {
    const std::size_t first = mask.first_seeing(j);
    if (first >= queries) break;
    multiply(d, std::min(kTileRows, mask.keys - j), width, queries - first,
             Left<T>{scores + j * kBlock + first, kBlock, 1}, Right<T>{y + first * width, width},
             Target<T>{sums + j * width, width}, Into::kAdd);
  }
}

/// Lanes (queries from `query` on) that do not see key `key`.
template <class D>
HWY_INLINE hn::Mask<D> hidden(D d, const BlockMask& mask, std::size_t query, std::size_t key) {
  using T = hn::TFromD<D>;
  return hn::Lt(hn::Iota(d, static_cast<T>(query)),
                hn::Set(d, static_cast<T>(mask.first_seeing(key))));
}

/// One step of the online softmax: scores become exp(score - most), and `correction` is what
/// earlier sums are to be multiplied by.
template <class D, typename T = hn::TFromD<D>>
void softmax_block(D d, const BlockMask& mask, T* scores, T* most, T* total, T* correction) {
  const std::size_t lanes = hn::Lanes(d);
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  const bool hides = mask.hides_any();
  for (std::size_t query = 0; query < kBlock; query += lanes) {
    const std::size_t seen = mask.seen(query + lanes - 1);
    const auto old_most = hn::LoadU(d, most + query);
    auto new_most = old_most;
    for (std::size_t j = 0; j < seen; ++j) {
      T* score = scores + j * kBlock + query;
      auto x = hn::LoadU(d, score);
      if (hides) {
        x = hn::IfThenElse(hidden(d, mask, query, j), lowest, x);
        hn::StoreU(x, d, score);
      }
      new_most = hn::Max(new_most, x);
    }
    const auto shift = hn::IfThenZeroElse(hn::Eq(new_most, lowest), new_most);
    const auto factor = exponential(d, hn::Sub(old_most, shift));
    auto sum = hn::Zero(d);
    for (std::size_t j = 0; j < seen; ++j) {
      T* score = scores + j * kBlock + query;
      const auto p = exponential(d, hn::Sub(hn::LoadU(d, score), shift));
      sum = hn::Add(sum, p);
      hn::StoreU(p, d, score);
    }
    for (std::size_t j = seen; j < mask.keys; ++j) {
      hn::StoreU(hn::Zero(d), d, scores + j * kBlock + query);
    }
    hn::StoreU(new_most, d, most + query);
    hn::StoreU(factor, d, correction + query);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, total + query), factor, sum), d, total + query);
  }
}

/// State of the online softmax of one query block.
template <typename T>
struct QueryBlock {
  T *q_transposed, *out, *most, *total, *correction;
  std::size_t first, queries;
};

template <typename T>
QueryBlock<T> start_query_block(const AttentionForwardTask<T>& task, std::size_t index,
                                std::size_t width) {
  T* memory = task.workspace + index * query_elements(width);
  QueryBlock<T> block{memory,
                      memory + kBlock * width,
                      memory + 2 * kBlock * width,
                      memory + (2 * width + 1) * kBlock,
                      memory + (2 * width + 2) * kBlock,
                      task.first_query + index * kBlock,
                      0};
  block.queries = std::min(kBlock, task.past_query - block.first);
  std::fill_n(block.out, kBlock * width, T{0});
  copy_rows(task.q, block.first, block.queries, task.d, width, block.out);
  transpose_block(block.out, width, block.q_transposed);
  scale_elements(block.q_transposed, kBlock * width, task.scale);
  std::fill_n(block.out, kBlock * width, T{0});
  std::fill_n(block.most, kBlock, -std::numeric_limits<T>::infinity());
  std::fill_n(block.total, kBlock, T{0});
  return block;
}

template <typename T>
void attend(const BlockMask& mask, std::size_t width, const T* k, const T* v, T* scores,
            const QueryBlock<T>& block) {
  const hn::ScalableTag<T> d;
  score_block(d, mask, width, k, block.q_transposed, scores);
  softmax_block(d, mask, scores, block.most, block.total, block.correction);
  for (std::size_t i = 0; i < block.queries; ++i) {
    if (block.correction[i] != T{1}) {
      scale_elements(block.out + i * width, width, block.correction[i]);
    }
  }
  weigh_rows(d, mask, block.queries, width, scores, v, block.out, Into::kAdd);
}

template <typename T>
void finish_query_block(const AttentionForwardTask<T>& task, std::size_t width,
                        const QueryBlock<T>& block) {
  for (std::size_t i = 0; i < block.queries; ++i) {
    // A total of NaN goes through; 0 means that the query sees nothing.
    const T total = block.total[i];
    T* out = block.out + i * width;
    scale_elements(out, width, total == T{0} ? T{0} : T{1} / total);
    std::copy_n(out, task.d, task.out.row(block.first + i));
    task.lse[block.first + i] =
        total == T{0} ? -std::numeric_limits<T>::infinity() : block.most[i] + std::log(total);
  }
}

template <typename T>
void forward_blocks(const AttentionForwardTask<T>& task) {
  const std::size_t width = padded(static_cast<std::int64_t>(task.d));
  T* k = task.workspace + kBlocksPerTask * query_elements(width);
  T* v = k + kBlock * width;
  T* scores = v + kBlock * width;
  QueryBlock<T> blocks[kBlocksPerTask];
  const std::size_t count = (task.past_query - task.first_query + kBlock - 1) / kBlock;
  for (std::size_t i = 0; i < count; ++i) blocks[i] = start_query_block(task, i, width);

  const std::size_t past = task.is_causal ? std::min(task.s, task.past_query) : task.s;
  for (std::size_t key = 0; key < past; key += kBlock) {
    const std::size_t keys = std::min(kBlock, task.s - key);
    copy_rows(task.k, key, keys, task.d, width, k);
    copy_rows(task.v, key, keys, task.d, width, v);
    for (std::size_t i = 0; i < count; ++i) {
      const QueryBlock<T>& block = blocks[i];
      if (task.is_causal && block.first + block.queries <= key) continue;
      attend(BlockMask{task.is_causal, block.first, key, keys}, width, k, v, scores, block);
    }
  }
  for (std::size_t i = 0; i < count; ++i) finish_query_block(task, width, blocks[i]);
}

/// scores = p = exp(score - lse); gradients = p (dp - delta), from dp.
template <class D, typename T = hn::TFromD<D>>
void softmax_backward_block(D d, const BlockMask& mask, const T* lse, const T* delta, T* scores,
                            T* gradients) {
  const std::size_t lanes = hn::Lanes(d);
  const bool hides = mask.hides_any();
  for (std::size_t query = 0; query < kBlock; query += lanes) {
    const std::size_t seen = mask.seen(query + lanes - 1);
    const auto shift = hn::LoadU(d, lse + query);
    const auto mean = hn::LoadU(d, delta + query);
    for (std::size_t j = 0; j < seen; ++j) {
      const std::size_t at = j * kBlock + query;
      auto p = exponential(d, hn::Sub(hn::LoadU(d, scores + at), shift));
      auto ds = hn::Mul(p, hn::Sub(hn::LoadU(d, gradients + at), mean));
      if (hides) {
        const auto is_hidden = hidden(d, mask, query, j);
        p = hn::IfThenZeroElse(is_hidden, p);
        ds = hn::IfThenZeroElse(is_hidden, ds);
      }
      hn::StoreU(p, d, scores + at);
      hn::StoreU(ds, d, gradients + at);
    }
    for (std::size_t j = seen; j < mask.keys; ++j) {
      hn::StoreU(hn::Zero(d), d, scores + j * kBlock + query);
      hn::StoreU(hn::Zero(d), d, gradients + j * kBlock + query);
    }
  }
}

template <typename T>
struct BackwardBlocks {
  T *k, *v, *dk, *dv;              ///< [S, width]
  T *q, *q_transposed;             ///< scaled
  T *dout, *dout_transposed, *dq;  ///< of a query block
  T *scores, *gradients;
  T *lse, *delta;
};

template <typename T>
BackwardBlocks<T> backward_blocks(T* workspace, std::size_t s, std::size_t width) {
  const auto take = [&workspace](std::size_t count) {
    T* taken = workspace;
    workspace += count;
    return taken;
  };
  BackwardBlocks<T> w{};
  for (T** keys : {&w.k, &w.v, &w.dk, &w.dv}) *keys = take(s * width);
  for (T** block : {&w.q, &w.q_transposed, &w.dout, &w.dout_transposed, &w.dq}) {
    *block = take(kBlock * width);
  }
  for (T** block : {&w.scores, &w.gradients}) *block = take(kBlock * kBlock);
  for (T** row : {&w.lse, &w.delta}) *row = take(kBlock);
  return w;
}

/// Queries of a block with their lse and delta = rowsum(dout * out). Rows past the end, and rows
/// that see nothing, get lse +inf, so that their probabilities are 0.
template <typename T>
void load_queries(const AttentionBackwardTask<T>& task, std::size_t first_query,
                  std::size_t queries, std::size_t width, const BackwardBlocks<T>& w) {
  for (T* block : {w.q, w.dout}) std::fill(block, block + kBlock * width, T{0});
  copy_rows(task.q, first_query, queries, task.d, width, w.q);
  copy_rows(task.dout, first_query, queries, task.d, width, w.dout);
  scale_elements(w.q, kBlock * width, task.scale);
  transpose_block(w.q, width, w.q_transposed);
  transpose_block(w.dout, width, w.dout_transposed);
  const hn::ScalableTag<T> d;
  copy_rows(task.out, first_query, queries, task.d, width, w.dq);
  for (std::size_t i = 0; i < kBlock; ++i) {
    auto sum = hn::Zero(d);
    for (std::size_t c = 0; c < width && i < queries; c += hn::Lanes(d)) {
      sum =
          hn::MulAdd(hn::LoadU(d, w.dq + i * width + c), hn::LoadU(d, w.dout + i * width + c), sum);
    }
    w.delta[i] = hn::GetLane(hn::SumOfLanes(d, sum));
    const T lse = i < queries ? task.lse[first_query + i] : -std::numeric_limits<T>::infinity();
    w.lse[i] = std::isinf(lse) && lse < T{0} ? -lse : lse;
  }
}

template <typename T>
void backward_query_block(const AttentionBackwardTask<T>& task, std::size_t first_query,
                          std::size_t width, const BackwardBlocks<T>& w) {
  const hn::ScalableTag<T> d;
  const std::size_t queries = std::min(kBlock, task.t - first_query);
  load_queries(task, first_query, queries, width, w);
  std::fill(w.dq, w.dq + kBlock * width, T{0});
  const std::size_t past = task.is_causal ? std::min(task.s, first_query + queries) : task.s;
  for (std::size_t key = 0; key < past; key += kBlock) {
    const BlockMask mask{task.is_causal, first_query, key, std::min(kBlock, task.s - key)};
    const std::size_t at = key * width;
    score_block(d, mask, width, w.k + at, w.q_transposed, w.scores);
    score_block(d, mask, width, w.v + at, w.dout_transposed, w.gradients);
    softmax_backward_block(d, mask, w.lse, w.delta, w.scores, w.gradients);
    add_to_keys(d, mask, queries, width, w.scores, w.dout, w.dv + at);
    add_to_keys(d, mask, queries, width, w.gradients, w.q, w.dk + at);
    weigh_rows(d, mask, queries, width, w.gradients, w.k + at, w.dq, Into::kAdd);
  }
  scale_elements(w.dq, kBlock * width, task.scale);
  for (std::size_t i = 0; i < queries; ++i) {
    std::copy_n(w.dq + i * width, task.d, task.dq.row(first_query + i));
  }
}

template <typename T>
void backward_head(const AttentionBackwardTask<T>& task) {
  const std::size_t width = padded(static_cast<std::int64_t>(task.d));
  const BackwardBlocks<T> w = backward_blocks(task.workspace, task.s, width);
  if (task.is_first_of_group) {
    copy_rows(task.k, 0, task.s, task.d, width, w.k);
    copy_rows(task.v, 0, task.s, task.d, width, w.v);
    for (T* sums : {w.dk, w.dv}) std::fill(sums, sums + task.s * width, T{0});
  }
  for (std::size_t query = 0; query < task.t; query += kBlock) {
    backward_query_block(task, query, width, w);
  }
  for (std::size_t j = 0; j < task.s && task.is_last_of_group; ++j) {
    std::copy_n(w.dk + j * width, task.d, task.dk.row(j));
    std::copy_n(w.dv + j * width, task.d, task.dv.row(j));
  }
}

void forward_f32(const AttentionForwardTask<float>& task) { forward_blocks(task); }
void forward_f64(const AttentionForwardTask<double>& task) { forward_blocks(task); }
void backward_f32(const AttentionBackwardTask<float>& task) { backward_head(task); }
void backward_f64(const AttentionBackwardTask<double>& task) { backward_head(task); }

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_f64);

void run(const AttentionForwardTask<float>& task) { HWY_DYNAMIC_DISPATCH(forward_f32)(task); }
void run(const AttentionForwardTask<double>& task) { HWY_DYNAMIC_DISPATCH(forward_f64)(task); }
void run(const AttentionBackwardTask<float>& task) { HWY_DYNAMIC_DISPATCH(backward_f32)(task); }
void run(const AttentionBackwardTask<double>& task) { HWY_DYNAMIC_DISPATCH(backward_f64)(task); }

constexpr auto kSpan = static_cast<std::int64_t>(kBlock * kBlocksPerTask);  ///< queries of a task

template <typename T>
Head<T> head(const TensorView& x, std::int64_t b, std::int64_t h) {
  return {x.as<T>() + b * x.strides[0] + h * x.strides[2], x.strides[1]};
}

/// The parts that both passes have, for query head `h` of batch entry `b`.
template <typename T, typename Args>
AttentionTask<T> task_of(const Args& args, std::int64_t b, std::int64_t h, T* workspace) {
  const Shape& q = args.q.shape;
  const std::int64_t g = h / (q[2] / args.k.shape[2]);
  return {head<T>(args.q, b, h),
          head<T>(args.k, b, g),
          head<T>(args.v, b, g),
          head<T>(args.out, b, h),
          args.lse.template as<T>() + (b * q[2] + h) * q[1],
          static_cast<std::size_t>(q[1]),
          static_cast<std::size_t>(args.k.shape[1]),
          static_cast<std::size_t>(q[3]),
          args.mask == ops::AttentionMask::kCausal,
          static_cast<T>(args.scale),
          workspace};
}

/// body(task, part) for every task; threads take the next one when they are done with theirs.
template <typename Body>
void run_tasks(const Stream& stream, std::int64_t tasks, Body&& body) {
  std::atomic<std::int64_t> next{0};
  const std::int64_t parts = std::min<std::int64_t>(tasks, stream.threads());
  parallel_for(stream, parts, 1, [&](std::int64_t first, std::int64_t) {
    for (std::int64_t i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) body(i, first);
  });
}

template <typename T>
void forward(const ops::AttentionArgs& args, const Stream& stream) {
  const Shape& shape = args.q.shape;
  const std::int64_t heads = shape[2];
  const std::int64_t spans = (shape[1] + kSpan - 1) / kSpan;
  const auto elements = static_cast<std::int64_t>(forward_elements(shape[3]));
  run_tasks(stream, shape[0] * heads * spans, [&](std::int64_t i, std::int64_t part) {
    const std::int64_t b = i / spans / heads;
    const std::int64_t h = i / spans % heads;
    // Queries that see most keys come first.
    const std::int64_t first = (spans - 1 - i % spans) * kSpan;
    run(AttentionForwardTask<T>{
        task_of<T>(args, b, h, static_cast<T*>(args.workspace) + part * elements),
        static_cast<std::size_t>(first),
        static_cast<std::size_t>(std::min(first + kSpan, shape[1]))});
  });
}

template <typename T>
void backward(const ops::AttentionBackwardArgs& args, const Stream& stream) {
  const std::int64_t key_heads = args.k.shape[2];
  const std::int64_t group = args.q.shape[2] / key_heads;
  const auto elements =
      static_cast<std::int64_t>(backward_elements(args.k.shape[1], args.q.shape[3]));
  run_tasks(stream, args.q.shape[0] * key_heads, [&](std::int64_t i, std::int64_t part) {
    const std::int64_t b = i / key_heads;
    const std::int64_t g = i % key_heads;
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
      run(AttentionBackwardTask<T>{
          task_of<T>(args, b, h, static_cast<T*>(args.workspace) + part * elements),
          head<T>(args.dout, b, h), head<T>(args.dq, b, h), head<T>(args.dk, b, g),
          head<T>(args.dv, b, g), h == g * group, h + 1 == (g + 1) * group});
    }
  });
}

std::size_t bytes_for(std::size_t elements, std::int64_t tasks, DType dtype, const Stream& stream) {
  return static_cast<std::size_t>(std::min<std::int64_t>(tasks, stream.threads())) * elements *
         size_of(dtype);
}

}  // namespace
}  // namespace tessera::kernels

namespace tessera::ops {

template <>
std::size_t attention_workspace_bytes<DeviceType::kCpu>(const AttentionArgs& args,
                                                        const Stream& stream) {
  const Shape& q = args.q.shape;
  const std::int64_t spans = (q[1] + kernels::kSpan - 1) / kernels::kSpan;
  return kernels::bytes_for(kernels::forward_elements(q[3]), q[0] * q[2] * spans, args.q.dtype,
                            stream);
}

template <>
void attention_kernel<DeviceType::kCpu>(const AttentionArgs& args, Stream& stream) {
  kernels::visit_f64_f32("attention", args.q.dtype,
                         [&]<typename T>() { kernels::forward<T>(args, stream); });
}

template <>
std::size_t attention_backward_workspace_bytes<DeviceType::kCpu>(const AttentionBackwardArgs& args,
                                                                 const Stream& stream) {
  return kernels::bytes_for(kernels::backward_elements(args.k.shape[1], args.q.shape[3]),
                            args.q.shape[0] * args.k.shape[2], args.q.dtype, stream);
}

template <>
void attention_backward_kernel<DeviceType::kCpu>(const AttentionBackwardArgs& args,
                                                 Stream& stream) {
  kernels::visit_f64_f32("attention", args.q.dtype,
                         [&]<typename T>() { kernels::backward<T>(args, stream); });
}

}  // namespace tessera::ops
#endif

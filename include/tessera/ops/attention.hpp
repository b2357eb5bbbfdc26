// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention, blocked with an online softmax (Milakov and Gimelshein, arXiv
// 1805.02867; Dao, arXiv 2307.08691): o = softmax(scale q k^T + mask) v per head; T x S scores are
// never stored. Causal: query i sees keys j <= i (T = S). Blocks that the mask hides whole are
// skipped.
#pragma once

#include "tessera/core/device.hpp"
#include "tessera/core/stream.hpp"
#include "tessera/core/tensor.hpp"

namespace tessera::ops {

enum class AttentionMask { kNone, kCausal };

struct AttentionArgs {
  TensorView q;  ///< [B, T, H, D], any strides but D contiguous
  TensorView
      k;  ///< [B, S, G, D], H a multiple of G (grouped heads: head h uses k, v of h / (H / G))
  TensorView v;    ///< [B, S, G, D]
  TensorView out;  ///< [B, T, H, D], D contiguous
  TensorView
      lse;  ///< [B, H, T]: log-sum-exp of the scaled, masked scores; -inf where nothing is seen
  AttentionMask mask = AttentionMask::kCausal;
  double scale = 1.0;
  void* workspace = nullptr;
};
struct AttentionBackwardArgs {
  TensorView q, k, v, out, lse, dout;
  TensorView dq, dk, dv;  ///< overwritten; strided like q, k, v
  AttentionMask mask = AttentionMask::kCausal;
  double scale = 1.0;
  void* workspace = nullptr;
};

template <DeviceType D>
void attention_kernel(const AttentionArgs& args, Stream& stream);
template <DeviceType D>
std::size_t attention_workspace_bytes(const AttentionArgs& args, const Stream& stream);
template <DeviceType D>
void attention_backward_kernel(const AttentionBackwardArgs& args, Stream& stream);
template <DeviceType D>
std::size_t attention_backward_workspace_bytes(const AttentionBackwardArgs& args,
                                               const Stream& stream);

struct AttentionResult {
  Tensor out;  ///< [B, T, H, D], contiguous
  Tensor lse;  ///< [B, H, T]
};

/// f64, f32. Causal masks need T = S. Views of a packed projection are fine. kShape, kDType errors.
AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionMask mask,
                          double scale);
/// Writes dq, dk and dv, which may be views of one packed tensor.
void attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                        const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                        const Tensor& lse, AttentionMask mask, double scale);

}  // namespace tessera::ops

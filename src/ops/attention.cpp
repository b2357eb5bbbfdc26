// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/attention.hpp"

#include <fmt/format.h>

#include "tessera/core/context.hpp"
#include "tessera/ops/copy.hpp"

namespace tessera::ops {
namespace {

void check(const Tensor& q, const Tensor& k, const Tensor& v, AttentionMask mask) {
  const auto reject = [&](const char* why) {
    throw Error(ErrorCode::kShape,
                fmt::format("attention: q {}, k {}, v {}: {}", q.shape().to_string(),
                            k.shape().to_string(), v.shape().to_string(), why));
  };
  if (q.rank() != 4 || k.rank() != 4) reject("expected [B, T, H, D] and [B, S, G, D]");
  if (k.shape() != v.shape()) reject("k and v must have one shape");
  if (q.shape()[0] != k.shape()[0]) reject("the batches differ");
  if (q.shape()[3] != k.shape()[3]) reject("the head sizes differ");
  if (k.shape()[2] < 1 || q.shape()[2] % k.shape()[2] != 0) {
    reject("the key heads do not divide the query heads");
  }
  if (mask == AttentionMask::kCausal && q.shape()[1] != k.shape()[1]) {
    reject("a causal mask needs as many keys as queries");
  }
  if (q.dtype() != k.dtype() || q.dtype() != v.dtype()) {
    throw Error(ErrorCode::kDType,
                fmt::format("attention: expected one dtype, got {}, {}, {}", to_string(q.dtype()),
                            to_string(k.dtype()), to_string(v.dtype())));
  }
}

struct BackwardTensors {
  const Tensor &dq, &dk, &dv, &dout, &out, &lse;
};

void check_gradients(const BackwardTensors& x, const Tensor& q, const Tensor& k) {
  const Shape& shape = q.shape();
  if (x.dq.shape() != shape || x.dk.shape() != k.shape() || x.dv.shape() != k.shape() ||
      x.dout.shape() != shape || x.out.shape() != shape ||
      x.lse.shape() != Shape{shape[0], shape[2], shape[1]}) {
    throw Error(
        ErrorCode::kShape,
        fmt::format("attention_backward: dq {}, dk {}, dv {}, dout {}, out {}, lse {} do "
                    "not belong to q {} and k {}",
                    x.dq.shape().to_string(), x.dk.shape().to_string(), x.dv.shape().to_string(),
                    x.dout.shape().to_string(), x.out.shape().to_string(),
                    x.lse.shape().to_string(), shape.to_string(), k.shape().to_string()));
  }
  for (const Tensor* tensor : {&x.dq, &x.dk, &x.dv, &x.dout, &x.out, &x.lse}) {
    if (tensor->dtype() != q.dtype()) {
      throw Error(ErrorCode::kDType,
                  fmt::format("attention_backward: expected {} as q has it, got {}",
                              to_string(q.dtype()), to_string(tensor->dtype())));
    }
  }
  for (const Tensor* tensor : {&x.dq, &x.dk, &x.dv}) {
    TESSERA_CHECK(tensor->strides()[3] == 1 || tensor->shape()[3] == 1 || tensor->numel() == 0,
                  "attention_backward: dq, dk and dv need a contiguous last dim; got strides {}",
                  tensor->strides().to_string());
  }
}

Tensor with_dense_heads(const Tensor& x) {
  return x.strides()[3] == 1 || x.shape()[3] == 1 ? x : contiguous(x);
}

Tensor workspace_of(Context& context, std::size_t bytes) {
  return Tensor::empty(context, {static_cast<std::int64_t>(bytes)}, DType::kU8,
                       MemoryCategory::kWorkspace);
}

}  // namespace

AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionMask mask,
                          double scale) {
  check(q, k, v, mask);
  Context& context = q.context();
  const Shape& shape = q.shape();
  AttentionResult result{Tensor::empty(context, shape, q.dtype()),
                         Tensor::empty(context, {shape[0], shape[2], shape[1]}, q.dtype())};
  if (result.lse.numel() == 0) return result;
  const Tensor qd = with_dense_heads(q);
  const Tensor kd = with_dense_heads(k);
  const Tensor vd = with_dense_heads(v);
  AttentionArgs args{qd.view(),         kd.view(), vd.view(), result.out.view(),
                     result.lse.view(), mask,      scale};
  on_device(q.device(), [&]<DeviceType D>() {
    const Tensor workspace =
        workspace_of(context, attention_workspace_bytes<D>(args, context.stream()));
    args.workspace = workspace.raw();
    attention_kernel<D>(args, context.stream());
  });
  return result;
}

void attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                        const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                        const Tensor& lse, AttentionMask mask, double scale) {
  check(q, k, v, mask);
  check_gradients({dq, dk, dv, dout, out, lse}, q, k);
  if (dk.numel() > 0 && lse.numel() == 0) {
    fill(dk, 0.0);
    fill(dv, 0.0);
  } else if (lse.numel() > 0) {
    Context& context = q.context();
    const Tensor qd = with_dense_heads(q);
    const Tensor kd = with_dense_heads(k);
    const Tensor vd = with_dense_heads(v);
    const Tensor od = with_dense_heads(out);
    const Tensor ld = contiguous(lse);
    const Tensor dd = with_dense_heads(dout);
    AttentionBackwardArgs args{qd.view(), kd.view(), vd.view(), od.view(), ld.view(), dd.view(),
                               dq.view(), dk.view(), dv.view(), mask,      scale};
    on_device(q.device(), [&]<DeviceType D>() {
      const Tensor workspace =
          workspace_of(context, attention_backward_workspace_bytes<D>(args, context.stream()));
      args.workspace = workspace.raw();
      attention_backward_kernel<D>(args, context.stream());
    });
  }
  dq.mark_changed();
  dk.mark_changed();
  dv.mark_changed();
}

}  // namespace tessera::ops

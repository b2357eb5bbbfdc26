#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the CPU with the flags and fields of train_step: the same models, the same FLOP count.

peer_torch.py --model gpt-10m --batch 8 --seq 256 --threads 2 --steps 5 --mode eager|compiled [--json]
Needs torch (measured with the newest from PyPI and with Debian's 1.13).
"""
import argparse
import json
import math
import resource
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {
    "gpt2-124m": dict(kind="gpt", layers=12, width=768, heads=12, vocabulary=50257),
    "gpt-10m": dict(kind="gpt", layers=6, width=384, heads=6, vocabulary=256),
    "llama-60m": dict(kind="llama", layers=8, width=512, heads=8, kv_heads=4, hidden=1408,
                      vocabulary=32000),
}


def attend(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    t = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = torch.ones(t, t, dtype=torch.bool).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


class GptBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        w = c["width"]
        self.heads = c["heads"]
        self.ln_1, self.ln_2 = nn.LayerNorm(w), nn.LayerNorm(w)
        self.qkv, self.proj = nn.Linear(w, 3 * w), nn.Linear(w, w)
        self.up, self.down = nn.Linear(w, 4 * w), nn.Linear(4 * w, w)

    def forward(self, x, rope):
        b, t, w = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.proj(attend(q, k, v).transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x, rope):
    cos, sin = rope
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        w, d = c["width"], c["width"] // c["heads"]
        self.heads, self.kv_heads = c["heads"], c["kv_heads"]
        self.n_1, self.n_2 = RmsNorm(w), RmsNorm(w)
        self.q, self.k, self.v, self.o = (nn.Linear(i, o, bias=False) for i, o in (
            (w, w), (w, d * self.kv_heads), (w, d * self.kv_heads), (w, w)))
        self.gate, self.up = (nn.Linear(w, c["hidden"], bias=False) for _ in range(2))
        self.down = nn.Linear(c["hidden"], w, bias=False)

    def forward(self, x, rope):
        b, t, w = x.shape
        h = self.n_1(x)
        q = rotate(self.q(h).view(b, t, self.heads, -1).transpose(1, 2), rope)
        k = rotate(self.k(h).view(b, t, self.kv_heads, -1).transpose(1, 2), rope)
        v = self.v(h).view(b, t, self.kv_heads, -1).transpose(1, 2)
        groups = self.heads // self.kv_heads
        k, v = (z.repeat_interleave(groups, 1) for z in (k, v))
        x = x + self.o(attend(q, k, v).transpose(1, 2).reshape(b, t, w))
        h = self.n_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, c, sequence):
        super().__init__()
        is_gpt = c["kind"] == "gpt"
        w = c["width"]
        self.is_gpt = is_gpt
        self.tokens = nn.Embedding(c["vocabulary"], w)
        if is_gpt:
            self.positions = nn.Embedding(sequence, w)
        else:
            d = w // c["heads"]
            angles = torch.outer(torch.arange(sequence).float(),
                                 10000.0 ** (-torch.arange(0, d, 2).float() / d))
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())
        self.blocks = nn.ModuleList((GptBlock if is_gpt else LlamaBlock)(c)
                                    for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(w) if is_gpt else RmsNorm(w)
        self.head = nn.Linear(w, c["vocabulary"], bias=False)
        if is_gpt:
            self.head.weight = self.tokens.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        rope = None
        if self.is_gpt:
            x = x + self.positions.weight[: tokens.shape[1]]
        else:
            rope = (self.cos, self.sin)
        for block in self.blocks:
            x = block(x, rope)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def measure_sgemm():
    a, b = torch.full((512, 512), 0.5), torch.full((512, 512), 0.25)
    best, begin = 0.0, time.perf_counter()
    count = 0
    while count < 10 or time.perf_counter() - begin < 0.05:
        start = time.perf_counter()
        a @ b
        best = max(best, 2 * 512**3 / (time.perf_counter() - start))
        count += 1
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="gpt-10m")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--mode", choices=("eager", "compiled"), default="eager")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    config = MODELS[args.model]
    sgemm = measure_sgemm()
    model = Model(config, args.seq)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups = [dict(params=decay, weight_decay=0.1), dict(params=rest, weight_decay=0.0)]
    try:
        optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)
    except (TypeError, RuntimeError):
        optimizer = torch.optim.AdamW(groups, lr=1e-4)
    run = torch.compile(model) if args.mode == "compiled" else model

    def batch():
        return torch.randint(config["vocabulary"], (args.batch, args.seq))

    def step():
        tokens, targets = batch(), batch()
        t0 = time.perf_counter()
        loss = run(tokens, targets)
        t1 = time.perf_counter()
        loss.backward()
        t2 = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        t3 = time.perf_counter()
        return (t3 - t0, t1 - t0, t2 - t1, t3 - t2)

    for _ in range(2 if args.mode == "compiled" else 1):
        step()
    times = sorted(step() for _ in range(args.steps))
    total, forward, backward, update = times[len(times) // 2]
    tokens = args.batch * args.seq
    unique = {id(p): p.numel() for p in model.parameters()}
    n = sum(unique.values()) - (args.seq * config["width"] if config["kind"] == "gpt" else 0)
    if config["kind"] == "llama":  # the input table is looked up, not multiplied
        n -= config["vocabulary"] * config["width"]
    flops = 6 * n + 12 * config["layers"] * config["width"] * args.seq
    result = {
        "bench": "train_step", "peer": f"torch {torch.__version__} {args.mode}",
        "model": args.model, "batch": args.batch, "sequence": args.seq, "threads": args.threads,
        "tokens_per_second": round(tokens / total, 1),
        "best_tokens_per_second": round(tokens / times[0][0], 1),
        "forward_ms": round(forward * 1e3, 1), "backward_ms": round(backward * 1e3, 1),
        "optimizer_ms": round(update * 1e3, 1),
        "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "sgemm_gflops": round(sgemm * 1e-9, 1),
        "flop_utilisation": round(tokens / total * flops / sgemm, 3),
    }
    if args.json:
        print(json.dumps(result))
    else:
        print(", ".join(f"{k} {v}" for k, v in result.items() if k != "bench"))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Records the losses of 50 AdamW steps of a small GPT-2 in PyTorch, f64, from weights and data that are
formulas of their indices (tests/train/gpt_golden_test.cpp computes the same). Writes gpt_torch.inc.
Run: python gpt_torch.py > gpt_torch.inc   (recorded with the versions named in its first line)"""
import math
import platform

import torch
import torch.nn.functional as F

V, C, H, L, T, B, STEPS = 61, 48, 4, 2, 24, 4, 50
PEAK, MINIMUM, WARMUP, CLIP, DECAY = 4e-3, 4e-4, 5, 1.0, 0.1


def fill(shape, number, std):
    count = math.prod(shape)
    i = torch.arange(1, count + 1, dtype=torch.float64)
    return (std * math.sqrt(2.0) * torch.sin(12.9898 * i + 78.233 * number)).reshape(shape)


def parameters():
    """Name, shape, std (0: zeros, 1: ones), decays; in the order of the model's registration."""
    res = 0.02 / math.sqrt(2 * L)
    yield "tokens.weight", (V, C), 0.02, True
    yield "positions.weight", (T, C), 0.02, True
    for b in range(L):
        p = f"blocks.{b}."
        yield p + "ln_1.weight", (C,), 1, False
        yield p + "ln_1.bias", (C,), 0, False
        yield p + "attention.qkv.weight", (3, H, C // H, C), 0.02, True
        yield p + "attention.qkv.bias", (3, H, C // H), 0, False
        yield p + "attention.projection.weight", (C, H, C // H), res, True
        yield p + "attention.projection.bias", (C,), 0, False
        yield p + "ln_2.weight", (C,), 1, False
        yield p + "ln_2.bias", (C,), 0, False
        yield p + "mlp.up.weight", (4 * C, C), 0.02, True
        yield p + "mlp.up.bias", (4 * C,), 0, False
        yield p + "mlp.down.weight", (C, 4 * C), res, True
        yield p + "mlp.down.bias", (C,), 0, False
    yield "ln_f.weight", (C,), 1, False
    yield "ln_f.bias", (C,), 0, False


def token(step, row, column):
    """Every token follows from the last one: the model can learn it."""
    n = step * B + row
    return (n * 7 + column * 2) % V


def main():
    torch.manual_seed(0)
    weights, decay, rest = {}, [], []
    for number, (name, shape, std, decays) in enumerate(parameters()):
        value = fill(shape, number, std) if 0 < std < 1 else torch.full(shape, float(std), dtype=torch.float64)
        weights[name] = value.requires_grad_()
        (decay if decays else rest).append(value)
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0.0}],
        lr=PEAK, betas=(0.9, 0.95), eps=1e-8)

    def linear(x, name, inputs=1):
        w = weights[name + ".weight"]
        flat = x.flatten(-inputs) @ w.reshape(-1, math.prod(w.shape[-inputs:])).T
        return flat + weights[name + ".bias"].flatten()

    def norm(x, name):
        return F.layer_norm(x, (C,), weights[name + ".weight"], weights[name + ".bias"], 1e-5)

    losses, norms = [], []
    for step in range(STEPS):
        rows = torch.tensor([[token(step, r, c) for c in range(T + 1)] for r in range(B)])
        x, y = rows[:, :-1], rows[:, 1:].clone()
        y[:, ::7] = -1  # ignored labels
        h = weights["tokens.weight"][x] + weights["positions.weight"]
        for b in range(L):
            p = f"blocks.{b}."
            qkv = linear(norm(h, p + "ln_1"), p + "attention.qkv").reshape(B, T, 3, H, C // H)
            q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
            h = h + linear(a, p + "attention.projection", 2)
            h = h + linear(F.gelu(linear(norm(h, p + "ln_2"), p + "mlp.up"), approximate="tanh"), p + "mlp.down")
        logits = norm(h, "ln_f") @ weights["tokens.weight"].T
        loss = F.cross_entropy(logits.reshape(-1, V), y.reshape(-1), ignore_index=-1)
        lr = PEAK * (step + 1) / WARMUP if step < WARMUP else MINIMUM + 0.5 * (PEAK - MINIMUM) * (
            1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(weights.values()), CLIP).item())
        optimizer.step()
        losses.append(loss.item())
    print(f"// Written by gpt_torch.py with PyTorch {torch.__version__}, Python {platform.python_version()}, seed 0.")
    for name, values in (("kTorchLosses", losses), ("kTorchNorms", norms)):
        print(f"inline constexpr double {name}[{STEPS}] = {{")
        for i in range(0, STEPS, 4):
            print("    " + " ".join(f"{v:.17g}," for v in values[i:i + 4]))
        print("};")


main()

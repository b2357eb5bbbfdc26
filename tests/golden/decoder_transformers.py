# SPDX-License-Identifier: Apache-2.0
"""Records logits, loss and gradients of small GPT-2 and Llama models of Hugging Face transformers in f64, from
weights that are formulas of their indices (tests/nn/decoder_golden_test.cpp computes the same), and rotary
frequencies under every scaling. Writes decoder_transformers.inc.
Run: python decoder_transformers.py > decoder_transformers.inc   (the versions are named in its first line)"""
import math

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

V, C, H, G, L, F, T, B = 13, 16, 4, 2, 2, 24, 6, 2
D = C // H


def fill(shape, number):
    """Weight `number` of the model, in our layout: 0.3 sin(12.9898 i + 78.233 number), norms 1 + that."""
    i = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64)
    return (0.3 * torch.sin(12.9898 * i + 78.233 * number)).reshape(shape)


def gpt2():
    """Our names and shapes in the order of registration, and where transformers keeps them."""
    config = GPT2Config(vocab_size=V, n_positions=T, n_embd=C, n_layer=L, n_head=H, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager")
    model = GPT2LMHeadModel(config).double()
    t = model.transformer
    places = [(t.wte.weight, (V, C), None), (t.wpe.weight, (T, C), None)]
    for b in t.h:
        places += [(b.ln_1.weight, (C,), "norm"), (b.ln_1.bias, (C,), None),
                   (b.attn.c_attn.weight, (3 * C, C), "conv"), (b.attn.c_attn.bias, (3 * C,), None),
                   (b.attn.c_proj.weight, (C, C), "conv"), (b.attn.c_proj.bias, (C,), None),
                   (b.ln_2.weight, (C,), "norm"), (b.ln_2.bias, (C,), None),
                   (b.mlp.c_fc.weight, (4 * C, C), "conv"), (b.mlp.c_fc.bias, (4 * C,), None),
                   (b.mlp.c_proj.weight, (C, 4 * C), "conv"), (b.mlp.c_proj.bias, (C,), None)]
    places += [(t.ln_f.weight, (C,), "norm"), (t.ln_f.bias, (C,), None)]
    return model, [[place] for place in places]


def llama():
    config = LlamaConfig(vocab_size=V, hidden_size=C, intermediate_size=F, num_hidden_layers=L,
                         num_attention_heads=H, num_key_value_heads=G, max_position_embeddings=T,
                         rms_norm_eps=1e-5, tie_word_embeddings=False, attn_implementation="sdpa",
                         rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    model = LlamaForCausalLM(config).double()
    m = model.model
    # transformers keeps its frequencies, and norms, in f32; here they are f64.
    m.rotary_emb.inv_freq = 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    m.rotary_emb.forward = lambda x, position_ids: (lambda a: (a.cos(), a.sin()))(
        torch.cat([position_ids[..., None].double() * m.rotary_emb.inv_freq] * 2, -1))
    for norm in [m.norm] + [n for b in m.layers for n in (b.input_layernorm, b.post_attention_layernorm)]:
        norm.forward = lambda x, n=norm: n.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    places = [[(m.embed_tokens.weight, (V, C), None)]]
    for b in m.layers:
        a = b.self_attn
        places += [[(b.input_layernorm.weight, (C,), "norm")], [(a.q_proj.weight, (H * D, C), None)],
                   [(a.k_proj.weight, (G * D, C), None), (a.v_proj.weight, (G * D, C), None)],
                   [(a.o_proj.weight, (C, H * D), None)],
                   [(b.post_attention_layernorm.weight, (C,), "norm")],
                   [(b.mlp.gate_proj.weight, (F, C), None), (b.mlp.up_proj.weight, (F, C), None)],
                   [(b.mlp.down_proj.weight, (C, F), None)]]
    places += [[(m.norm.weight, (C,), "norm")], [(model.lm_head.weight, (V, C), None)]]
    return model, places


def record(name, model, places):
    with torch.no_grad():
        for number, group in enumerate(places):  # a group is one packed weight of ours
            total = sum(math.prod(shape) for _, shape, _ in group)
            flat, first = fill((total,), number), 0
            for tensor, shape, kind in group:
                value = flat[first:first + math.prod(shape)].reshape(shape)
                first += math.prod(shape)
                value = value + 1 if kind == "norm" else value
                tensor.copy_(value.T if kind == "conv" else value)
    tokens = torch.tensor([[(r * 5 + c * 3 + 1) % V for c in range(T)] for r in range(B)])
    targets = torch.tensor([[(r * 7 + c * 2 + 4) % V for c in range(T)] for r in range(B)])
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, V), targets.reshape(-1), reduction="sum")
    loss.backward()
    sums = []
    for number, group in enumerate(places):  # the gradient against a fixed direction of its shape
        parts = [(p.grad.T if kind == "conv" else p.grad).flatten() for p, _, kind in group]
        flat = torch.cat(parts)
        sums.append((flat * fill(flat.shape, number + 100)).sum().item())
    write(f"k{name}Logits", logits.flatten().tolist())
    write(f"k{name}Loss", [loss.item()])
    write(f"k{name}Gradients", sums)


def write(name, values):
    print(f"inline constexpr double {name}[{len(values)}] = {{")
    for i in range(0, len(values), 4):
        print("    " + ", ".join(f"{v:.17g}" for v in values[i:i + 4]) + ",")
    print("};")


def ropes():
    base = {"rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    cases = {"Linear": {"rope_type": "linear"}, "Dynamic": {"rope_type": "dynamic"}, "Yarn": {"rope_type": "yarn"},
             "Llama3": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}}
    for name, extra in cases.items():
        length = 32 if name == "Dynamic" else 128
        config = LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16, max_position_embeddings=length,
                             rope_parameters={**base, **extra})
        arguments = {"seq_len": 128} if name == "Dynamic" else {}
        frequencies, factor = ROPE_INIT_FUNCTIONS[extra["rope_type"]](config, "cpu", **arguments)
        write(f"kRope{name}", frequencies.double().tolist() + [float(factor)])


if __name__ == "__main__":
    print(f"// Written by decoder_transformers.py with transformers {transformers.__version__}, "
          f"PyTorch {torch.__version__}.")
    print("// clang-format off")
    record("Gpt2", *gpt2())
    record("Llama", *llama())
    ropes()

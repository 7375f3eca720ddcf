"""Records what LLaMA in Hugging Face's own layout computes.

    python3 llama_hf.py        (needs torch and numpy; run once, results kept)

Written after the layout of the transformers library (names, linear weights of
shape [out, in], query heads of a group side by side, rotary pairs half a head
apart), without that library.  llama_hf.safetensors holds random weights in f32
with those names, llama_hf_logits.safetensors the logits of `tokens` in f64.
"""
import numpy as np
import torch
import torch.nn.functional as F

from gpt2_hf import write_safetensors

V, C, G, H, D, INNER, T, L, THETA = 40, 24, 2, 3, 4, 20, 10, 2, 5e5


def weights():
    rng = np.random.default_rng(8)
    shapes = {"model.embed_tokens.weight": (V, C), "model.norm.weight": (C,),
              "lm_head.weight": (V, C)}
    for i in range(L):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (C,),
                   p + "post_attention_layernorm.weight": (C,),
                   p + "self_attn.q_proj.weight": (G * H * D, C),
                   p + "self_attn.k_proj.weight": (G * D, C),
                   p + "self_attn.v_proj.weight": (G * D, C),
                   p + "self_attn.o_proj.weight": (C, G * H * D),
                   p + "mlp.gate_proj.weight": (INNER, C),
                   p + "mlp.up_proj.weight": (INNER, C),
                   p + "mlp.down_proj.weight": (C, INNER)}
    return {k: (0.4 * rng.standard_normal(s) + ("norm" in k)).astype(np.float32)
            for k, s in shapes.items()}


def rms(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def rotate_half(x):
    return torch.cat([-x[..., D // 2:], x[..., :D // 2]], -1)


def rotary(x):  # [heads, T, D]
    inverse = THETA ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = torch.arange(T, dtype=torch.float64)[:, None] * inverse
    angle = torch.cat([angle, angle], -1)
    return x * angle.cos() + rotate_half(x) * angle.sin()


def forward(w, tokens):
    x = w["model.embed_tokens.weight"][tokens]
    causal = torch.tril(torch.ones(T, T, dtype=torch.bool))
    for i in range(L):
        p = f"model.layers.{i}."
        a = rms(x, w[p + "input_layernorm.weight"])
        q, k, v = (F.linear(a, w[p + f"self_attn.{n}_proj.weight"])
                   .view(T, -1, D).transpose(0, 1) for n in "qkv")
        q, k = rotary(q), rotary(k)
        k, v = k.repeat_interleave(H, 0), v.repeat_interleave(H, 0)
        s = q @ k.transpose(-1, -2) / D ** 0.5
        o = torch.softmax(s.masked_fill(~causal, -torch.inf), -1) @ v
        o = o.transpose(0, 1).reshape(T, -1)
        x = x + F.linear(o, w[p + "self_attn.o_proj.weight"])
        a = rms(x, w[p + "post_attention_layernorm.weight"])
        a = (F.silu(F.linear(a, w[p + "mlp.gate_proj.weight"]))
             * F.linear(a, w[p + "mlp.up_proj.weight"]))
        x = x + F.linear(a, w[p + "mlp.down_proj.weight"])
    return F.linear(rms(x, w["model.norm.weight"]), w["lm_head.weight"])


def main():
    w = weights()
    write_safetensors("llama_hf.safetensors", w)
    w = {k: torch.tensor(v, dtype=torch.float64) for k, v in w.items()}
    tokens = np.random.default_rng(9).integers(0, V, T).astype(np.int32)
    write_safetensors("llama_hf_logits.safetensors",
                      {"tokens": tokens, "logits": forward(w, tokens).numpy()})


if __name__ == "__main__":
    main()

"""Records what GPT-2 in Hugging Face's own layout computes.

    python3 gpt2_hf.py         (needs torch and numpy; run once, results kept)

Written after the layout of the transformers library (names, Conv1D weights of
shape [in, out], query, key and value fused in c_attn), without that library.
gpt2_hf.safetensors holds random weights in f32 with those names;
gpt2_hf_logits.safetensors the logits of `tokens` computed in f64, and `greedy`:
the prompt and the tokens that follow it one by one, each from the window of the
last T tokens, with `logprob`, the logarithm of each one's probability.
"""
import json
import struct

import numpy as np
import torch
import torch.nn.functional as F

V, C, H, T, L = 256, 16, 2, 12, 2
DTYPES = {"float32": "F32", "float64": "F64", "int32": "I32"}


def write_safetensors(path, tensors):
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        data = np.ascontiguousarray(tensors[name])
        end = offset + data.nbytes
        header[name] = {"dtype": DTYPES[str(data.dtype)],
                        "shape": list(data.shape), "data_offsets": [offset, end]}
        blobs.append(data.tobytes())
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def weights():
    rng = np.random.default_rng(5)
    w = {"transformer.wte.weight": (V, C), "transformer.wpe.weight": (T, C),
         "transformer.ln_f.weight": (C,), "transformer.ln_f.bias": (C,)}
    for i in range(L):
        h = f"transformer.h.{i}."
        for name, shape in (("ln_1.weight", (C,)), ("ln_1.bias", (C,)),
                            ("ln_2.weight", (C,)), ("ln_2.bias", (C,)),
                            ("attn.c_attn.weight", (C, 3 * C)),
                            ("attn.c_attn.bias", (3 * C,)),
                            ("attn.c_proj.weight", (C, C)),
                            ("attn.c_proj.bias", (C,)),
                            ("mlp.c_fc.weight", (C, 4 * C)),
                            ("mlp.c_fc.bias", (4 * C,)),
                            ("mlp.c_proj.weight", (4 * C, C)),
                            ("mlp.c_proj.bias", (C,))):
            w[h + name] = shape
    return {k: (0.4 * rng.standard_normal(s) + (("ln_" in k) & ("weight" in k))
                ).astype(np.float32) for k, s in w.items()}


def conv1d(x, w, name):
    return x @ w[name + ".weight"] + w[name + ".bias"]


def forward(w, tokens):
    n = len(tokens)
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:n]
    causal = torch.tril(torch.ones(n, n, dtype=torch.bool))
    for i in range(L):
        h = f"transformer.h.{i}."
        a = F.layer_norm(x, (C,), w[h + "ln_1.weight"], w[h + "ln_1.bias"], 1e-5)
        q, k, v = conv1d(a, w, h + "attn.c_attn").split(C, dim=-1)
        q, k, v = (t.view(n, H, C // H).transpose(0, 1) for t in (q, k, v))
        s = q @ k.transpose(-1, -2) / (C // H) ** 0.5
        p = torch.softmax(s.masked_fill(~causal, -torch.inf), -1)
        o = (p @ v).transpose(0, 1).reshape(n, C)
        x = x + conv1d(o, w, h + "attn.c_proj")
        a = F.layer_norm(x, (C,), w[h + "ln_2.weight"], w[h + "ln_2.bias"], 1e-5)
        a = F.gelu(conv1d(a, w, h + "mlp.c_fc"), approximate="tanh")
        x = x + conv1d(a, w, h + "mlp.c_proj")
    x = F.layer_norm(x, (C,), w["transformer.ln_f.weight"],
                     w["transformer.ln_f.bias"], 1e-5)
    return x @ w["transformer.wte.weight"].T


def main():
    w = weights()
    write_safetensors("gpt2_hf.safetensors", w)
    w = {k: torch.tensor(v, dtype=torch.float64) for k, v in w.items()}
    tokens = np.random.default_rng(6).integers(0, V, T).astype(np.int32)
    logits = forward(w, tokens).numpy()
    greedy, logprob = [82, 79, 77, 69, 79, 58], []  # "ROMEO:"
    for _ in range(20):
        last = forward(w, greedy[-T:])[-1]
        greedy.append(int(last.argmax()))
        logprob.append(float(torch.log_softmax(last, -1).max()))
    write_safetensors("gpt2_hf_logits.safetensors",
                      {"tokens": tokens, "logits": logits,
                       "greedy": np.array(greedy, dtype=np.int32),
                       "logprob": np.array(logprob)})
    print(greedy, logprob)


if __name__ == "__main__":
    main()

"""Tokens a second of GPT-2 (124M): dnnc sample against PyTorch, interleaved.

    python3 benchmarks/compare_decode.py [f32|bf16] [ROUNDS [TOKENS]]

Both on two threads with the same random weights, greedy, one text, keys and
values of earlier positions in preallocated caches (PyTorch: plain functions,
torch.inference_mode).  Each round writes TOKENS tokens with one, then with the
other, and reads as many bytes as the weights have once per token, which is the
limit that memory sets.  In f32 the texts are compared first: they must be the
same.  Printed: medians over the rounds, and the ratios of each round.
Needs torch and numpy (PyPI), build/dnnc, and nothing else running.
"""
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F

L, C, H, V, T = 12, 768, 12, 50257, 1024
D, INNER = C // H, 4 * C


def weights():
    rng = np.random.default_rng(1)
    shapes = {"wte": (V, C), "wpe": (T, C), "norm.g": (C,), "norm.b": (C,)}
    for i in range(L):
        b = f"block[{i}]."
        shapes |= {b + "attn.w" + k: (C, H, D) for k in "qkv"}
        shapes |= {b + "attn.b" + k: (H, D) for k in "qkv"}
        shapes |= {b + "attn.wo": (H, D, C), b + "attn.bo": (C,),
                   b + "mlp.w1": (C, INNER), b + "mlp.b1": (INNER,),
                   b + "mlp.w2": (INNER, C), b + "mlp.b2": (C,)}
        shapes |= {b + f"norm[{j}].{k}": (C,) for j in (0, 1) for k in "gb"}
    return {k: (0.05 * rng.standard_normal(s, dtype=np.float32)
                + k.endswith(".g")) for k, s in shapes.items()}


def write(path, tensors):
    header, at = {}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(x.shape),
                        "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            file.write(x.tobytes())


class Peer:
    def __init__(self, w, dtype):
        def linear(*names):  # [out, in], as torch keeps it
            x = torch.cat([torch.from_numpy(w[n]).reshape(rows(n), -1)
                           for n in names], 1)
            return x.t().contiguous().to(dtype)

        def rows(name):
            return INNER if name.endswith("w2") else C

        def vector(*names):
            return torch.cat([torch.from_numpy(w[n]).reshape(-1)
                              for n in names]).to(dtype)

        self.wte = torch.from_numpy(w["wte"]).to(dtype)
        self.wpe = torch.from_numpy(w["wpe"]).to(dtype)
        self.norm = vector("norm.g"), vector("norm.b")
        self.blocks = []
        for i in range(L):
            b = f"block[{i}]."
            self.blocks.append((
                (vector(b + "norm[0].g"), vector(b + "norm[0].b")),
                linear(*(b + "attn.w" + k for k in "qkv")),
                vector(*(b + "attn.b" + k for k in "qkv")),
                linear(b + "attn.wo"), vector(b + "attn.bo"),
                (vector(b + "norm[1].g"), vector(b + "norm[1].b")),
                linear(b + "mlp.w1"), vector(b + "mlp.b1"),
                linear(b + "mlp.w2"), vector(b + "mlp.b2")))
        self.keys = torch.zeros(L, 1, H, T, D, dtype=dtype)
        self.values = torch.zeros_like(self.keys)

    def step(self, token, at):
        x = (self.wte[token] + self.wpe[at]).view(1, C)
        for i, (n0, wqkv, bqkv, wo, bo, n1, w1, b1, w2, b2) in enumerate(
                self.blocks):
            q, k, v = F.linear(F.layer_norm(x, (C,), *n0), wqkv, bqkv).view(
                3, 1, H, 1, D)
            self.keys[i, :, :, at] = k[:, :, 0]
            self.values[i, :, :, at] = v[:, :, 0]
            o = F.scaled_dot_product_attention(
                q, self.keys[i, :, :, :at + 1], self.values[i, :, :, :at + 1])
            x = x + F.linear(o.view(1, C), wo, bo)
            h = F.linear(F.layer_norm(x, (C,), *n1), w1, b1)
            x = x + F.linear(F.gelu(h, approximate="tanh"), w2, b2)
        return F.linear(F.layer_norm(x, (C,), *self.norm), self.wte)

    @torch.inference_mode()
    def text(self, n):
        token, out, begin = 0, [], time.monotonic()
        for at in range(n):
            token = int(self.step(token, at).argmax())
            out.append(token)
        return n / (time.monotonic() - begin), out


def run_dnnc(bundle, path, n):
    environment = dict(os.environ, OMP_NUM_THREADS="2")
    command = [os.path.join(bundle, "run"), "--sample", "--load", path,
               "--prompt", "!", "--count", str(n), "--json", "--data",
               os.getcwd()]
    out = subprocess.run(command, env=environment, check=True,
                         stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL).stdout
    line = json.loads(out)
    return line["tokens_per_s"], line["tokens"]


def read_once(x):
    begin = time.monotonic()
    x.sum()
    return 1 / (time.monotonic() - begin)


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "f32"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[name]
    torch.set_num_threads(2)
    scratch = tempfile.TemporaryDirectory()
    folder = scratch.name
    path, bundle = (os.path.join(folder, x) for x in ("w.safetensors", "b"))
    w = weights()
    write(path, w)
    subprocess.run(["build/dnnc", "build", "models/gpt2.dnn",
                    "precision.compute=" + name, "sample.temperature=0", "-o",
                    bundle, "--quiet"], check=True)
    peer = Peer(w, dtype)
    # The bytes of the weights that a token needs: all but wpe.
    n_floats = sum(x.size for k, x in w.items() if k != "wpe")
    if name == "bf16":
        n_floats //= 2
    block = torch.ones(n_floats)
    ours, theirs = run_dnnc(bundle, path, n), peer.text(n)
    read_once(block)
    if name == "f32":
        assert ours[1] == theirs[1], (ours[1], theirs[1])
        print(f"the same {n} tokens")
    speeds = []
    for _ in range(rounds):
        limit = statistics.median(read_once(block) for _ in range(9))
        speeds.append((run_dnnc(bundle, path, n)[0], peer.text(n)[0], limit))
    for label, column in (("dnnc", 0), ("PyTorch", 1), ("memory", 2)):
        print(f"{label:8} {statistics.median(s[column] for s in speeds):6.1f} "
              "tokens/s")
    for label, column in (("PyTorch", 1), ("memory", 2)):
        ratios = [s[0] / s[column] for s in speeds]
        print(f"dnnc / {label}: {statistics.median(ratios):.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f}, {rounds} rounds)")


if __name__ == "__main__":
    main()

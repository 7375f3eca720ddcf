"""A training step of chargpt or gpt2 in PyTorch eager, the way a careful user
writes it: fused attention, fused AdamW, gradient clipping, denormals flushed.

    python3 torch_gpt.py MODEL STEPS      MODEL: chargpt or gpt2

Asked and answering as torch_step.py says.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from torch_step import answer, stream

SIZES = {  # batch, T, V, C, H, L, bias, gelu
    "chargpt": (12, 64, 256, 128, 4, 4, False, "none"),
    "gpt2": (4, 64, 50257, 768, 12, 12, True, "tanh"),
}


class Block(nn.Module):
    def __init__(self, c, h, bias, gelu):
        super().__init__()
        self.h, self.gelu = h, gelu
        self.n1 = nn.LayerNorm(c, bias=bias)
        self.n2 = nn.LayerNorm(c, bias=bias)
        self.qkv = nn.Linear(c, 3 * c, bias=bias)
        self.wo = nn.Linear(c, c, bias=bias)
        self.w1 = nn.Linear(c, 4 * c, bias=bias)
        self.w2 = nn.Linear(4 * c, c, bias=bias)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (a.view(b, t, self.h, -1).transpose(1, 2)
                   for a in self.qkv(self.n1(x)).split(c, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(a.transpose(1, 2).reshape(b, t, c))
        return x + self.w2(F.gelu(self.w1(self.n2(x)), approximate=self.gelu))


class GPT(nn.Module):
    def __init__(self, t, v, c, h, layers, bias, gelu):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(v, c), nn.Embedding(t, c)
        self.blocks = nn.ModuleList(Block(c, h, bias, gelu)
                                    for _ in range(layers))
        self.norm = nn.LayerNorm(c, bias=bias)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = 0.02
                if name.endswith(("wo.weight", "w2.weight")):
                    std /= math.sqrt(2 * layers)
                nn.init.normal_(p, 0, std)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe.weight
        for block in self.blocks:
            h = block(h)
        logits = self.norm(h) @ self.wte.weight.T
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def tokens(model):
    if model == "chargpt":
        return stream("data/inputs/tinyshakespeare.txt")
    raw = np.fromfile("data/inputs/tinyshakespeare-gpt2-train.bin", "<u2")
    return torch.tensor(raw[512:].astype("i8"))


def main():
    name = sys.argv[1]
    batch, t, *rest = SIZES[name]
    torch.manual_seed(1)
    data = tokens(name)
    model = GPT(t, *rest)
    decay = [p for p in model.parameters() if p.dim() == 2]
    plain = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1},
         {"params": plain, "weight_decay": 0.0}],
        lr=1.0, betas=(0.9, 0.99), fused=True)
    peak, warmup = (1e-3, 100) if name == "chargpt" else (6e-4, 700)
    answer(model, data, batch, t, optimizer, peak, warmup)


if __name__ == "__main__":
    main()

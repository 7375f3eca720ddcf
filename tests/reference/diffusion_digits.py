#!/usr/bin/env python3
"""Records the validation loss of models/diffusion_digits.dnn after 20 epochs in PyTorch
for five seeds: the same net, initial distribution, optimizer, batches and length, other
random numbers. It writes diffusion_digits.txt, a line for each seed.
Usage: diffusion_digits.py (needs torch)."""
import copy
import csv
import gzip
import math
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).parent
P, H, L, S, B, EPOCHS, EVAL = 64, 256, 4, 100, 60, 20, 297
RATE, WARMUP, CLIP, EMA = 1e-3, 50, 1.0, 0.995


def kept(t):
    """The variance that is left after t of S steps."""
    begin = math.cos(0.008 / 1.008 * math.pi / 2)
    return (torch.cos((t / S + 0.008) / 1.008 * math.pi / 2) / begin) ** 2


class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Parameter(torch.randn(P, H) / math.sqrt(P))
        self.inner = nn.Parameter(torch.randn(L, H, H) * 0.5 / math.sqrt(H))
        self.leave = nn.Parameter(torch.zeros(H, P))
        self.steps = nn.Parameter(torch.randn(S, H))

    def forward(self, x):
        noise = torch.randn_like(x)
        t = torch.randint(S, (len(x),))
        left = kept(t + 1)[:, None]
        h = (left.sqrt() * x + (1 - left).sqrt() * noise) @ self.enter + self.steps[t]
        for w in self.inner:
            h = h + F.gelu(h) @ w
        return ((h @ self.leave - noise) ** 2).mean(1).mean()


def rate(step, total):
    if step <= WARMUP:
        return RATE * step / WARMUP
    return RATE * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (total - WARMUP)))


def validation_loss(seed, train, test):
    torch.manual_seed(seed)
    net = Noise()
    average = copy.deepcopy(net)
    adam = torch.optim.Adam(net.parameters(), lr=RATE)
    total, step = EPOCHS * (len(train) // B), 0
    for _ in range(EPOCHS):
        order = torch.randperm(len(train))
        for i in range(0, len(train) - B + 1, B):
            step += 1
            adam.param_groups[0]["lr"] = rate(step, total)
            adam.zero_grad()
            net(train[order[i:i + B]]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            adam.step()
            with torch.no_grad():
                for e, w in zip(average.parameters(), net.parameters()):
                    e.lerp_(w, 1 - EMA)
    with torch.no_grad():
        return average(test).item()


def main():
    torch.set_num_threads(1)
    with gzip.open(HERE.parents[1] / "data/inputs/uci-digits.csv.gz", "rt") as file:
        rows = [[float(v) for v in row[:P]] for row in csv.reader(file)]
    x = torch.tensor(rows) / 8 - 1
    losses = {seed: validation_loss(seed, x[:-EVAL], x[-EVAL:]) for seed in range(1, 6)}
    with open(HERE / "diffusion_digits.txt", "w", encoding="utf-8") as out:
        print("# seed, validation loss; by diffusion_digits.py with torch", torch.__version__, file=out)
        for seed, loss in losses.items():
            print(seed, f"{loss:.4f}", file=out)


main()

#!/usr/bin/env python3
"""Records the validation loss of models/vae_digits.dnn in PyTorch for five seeds: the
same net, initial distribution, optimizer, batches and length, other random numbers. It
writes vae_digits.txt, a line for each seed. Usage: vae_digits.py (needs torch)."""
import csv
import gzip
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).parent
P, H, Z, B, EPOCHS, EVAL = 64, 256, 8, 60, 40, 297


class Vae(nn.Module):
    """nn.Linear begins uniform on (-1 / sqrt(I), 1 / sqrt(I)), as models/lib.dnn does."""

    def __init__(self):
        super().__init__()
        self.enter, self.mean, self.log_var = nn.Linear(P, H), nn.Linear(H, Z), nn.Linear(H, Z)
        self.wide, self.leave = nn.Linear(Z, H), nn.Linear(H, P)

    def forward(self, x):
        h = torch.relu(self.enter(x))
        mean, log_var = self.mean(h), self.log_var(h)
        code = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)
        logits = self.leave(torch.relu(self.wide(code)))
        unlike = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        kl = 0.5 * (log_var.exp() + mean * mean - 1 - log_var).sum(1)
        return (unlike + kl).mean()


def validation_loss(seed, train, test):
    torch.manual_seed(seed)
    net = Vae()
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        order = torch.randperm(len(train))
        for i in range(0, len(train) - B + 1, B):
            adam.zero_grad()
            net(train[order[i:i + B]]).backward()
            adam.step()
    with torch.no_grad():
        return net(test).item()


def main():
    torch.set_num_threads(1)
    with gzip.open(HERE.parents[1] / "data/inputs/uci-digits.csv.gz", "rt") as file:
        rows = [[float(v) for v in row[:P]] for row in csv.reader(file)]
    x = torch.tensor(rows) / 16
    losses = {seed: validation_loss(seed, x[:-EVAL], x[-EVAL:]) for seed in range(1, 6)}
    with open(HERE / "vae_digits.txt", "w", encoding="utf-8") as out:
        print("# seed, validation loss; by vae_digits.py with torch", torch.__version__, file=out)
        for seed, loss in losses.items():
            print(seed, f"{loss:.4f}", file=out)


main()

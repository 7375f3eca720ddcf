"""A training step of charlstm in PyTorch eager, the way a careful user writes
it: nn.LSTM, Adam in one kernel, gradient clipping, denormals flushed.

    python3 torch_lstm.py charlstm       asked and answering as torch_gpt.py
"""
import json
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
torch.set_flush_denormal(True)
B, T, V, E, C = 32, 64, 128, 32, 192


class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, E)
        self.lstm = nn.LSTM(E, C, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(C, V)

    def forward(self, x, y):
        h, _ = self.lstm(self.emb(x))
        logits = self.out(self.drop(h))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def main():
    torch.manual_seed(1)
    data = open("data/inputs/names.txt", "rb").read()
    data = torch.tensor(np.frombuffer(data, "u1").astype("i8"))
    model = CharLSTM()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, fused=True)
    random = np.random.default_rng(1)
    done = 0

    def step():
        nonlocal done
        done += 1
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1, done / 50)
        at = random.integers(0, len(data) * 9 // 10 - T - 1, B)
        x = torch.stack([data[i:i + T] for i in at])
        y = torch.stack([data[i + 1:i + 1 + T] for i in at])
        loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    for line in sys.stdin:
        times = []
        for _ in range(json.loads(line)["steps"]):
            start = time.perf_counter()
            loss = step()
            times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps({"ms": float(np.median(times)), "all": times,
                          "loss": loss}), flush=True)


main()

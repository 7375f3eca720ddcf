"""What the peers share: windows of a stream, a step, and answering.

A peer reads one JSON line per request from standard input ({"steps": N}) and
answers each with {"ms": median, "all": [...], "loss": last}; so that a caller
can interleave it with another program.  The process, and with it every cache,
stays.
"""
import json
import os
import sys
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
torch.set_flush_denormal(True)


def stream(path):
    return torch.tensor(np.fromfile(path, "u1").astype("i8"))


def serve(step):
    """Answers requests: `step` makes one step and returns its loss."""
    for line in sys.stdin:
        times = []
        for _ in range(json.loads(line)["steps"]):
            start = time.perf_counter()
            loss = step()
            times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps({"ms": float(np.median(times)), "all": times,
                          "loss": loss}), flush=True)


def answer(model, data, batch, window, optimizer, peak, warmup):
    """Trains `model`(x, y), a loss, on windows of the stream at random places;
    the learning rate rises to `peak` in `warmup` steps."""
    random = np.random.default_rng(1)
    done = 0

    def step():
        nonlocal done
        done += 1
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1, done / warmup)
        at = random.integers(0, len(data) - window - 1, batch)
        x = torch.stack([data[i:i + window] for i in at])
        y = torch.stack([data[i + 1:i + 1 + window] for i in at])
        loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    serve(step)

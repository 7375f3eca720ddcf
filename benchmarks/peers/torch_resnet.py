"""A training step of resnet50 at batch 4 in PyTorch eager, the way a careful
user writes it: torchvision's network, channels last, SGD with momentum in one
kernel, denormals flushed.

    python3 torch_resnet.py resnet50     asked and answering as torch_gpt.py
"""
import json
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
torch.set_flush_denormal(True)
B, K = 4, 1000


def main():
    torch.manual_seed(1)
    layout = (torch.channels_last if os.environ.get("CHANNELS_LAST", "1") == "1"
              else torch.contiguous_format)
    model = torchvision.models.resnet50().to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9,
                                weight_decay=1e-4, fused=True)
    done = 0

    def step():
        nonlocal done
        done += 1
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * min(1, done / 500)
        x = torch.randn(B, 3, 224, 224).to(memory_format=layout)
        y = torch.randint(K, (B,))
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
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

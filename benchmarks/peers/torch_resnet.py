"""A training step of resnet50 at batch 4 in PyTorch eager, the way a careful
user writes it: torchvision's network, channels last, SGD with momentum in one
kernel, denormals flushed.

    python3 torch_resnet.py resnet50     asked and answering as torch_step.py says
"""
import os

import torch
import torch.nn.functional as F
import torchvision

from torch_step import serve

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

    serve(step)


main()

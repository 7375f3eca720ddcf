"""A training step of PyTorch eager on several ranks over Gloo, one process each.

    RANK=R WORLD_SIZE=W MASTER_ADDR=A MASTER_PORT=P GLOO_SOCKET_IFNAME=I
        python3 torch_ranks.py vgg16|gpt2|zero3|tensor

    vgg16    VGG-16, 12 images in all, DistributedDataParallel, SGD
    gpt2     GPT-2 with 4 layers, DistributedDataParallel, AdamW
    zero3    the same, fully_shard (FSDP2) around each block and the whole
    tensor   the same, parallelize_module: attention by heads, MLP by hidden
             units, as Megatron-LM has it

Rank 0 is asked and answers as torch_step.py says and tells the other ranks.
benchmarks/compare_ranks.py starts all of them.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_gpt
from torch_step import serve

IMAGES, CLASSES = 12, 1000
BATCH, T = int(os.environ.get("GPT_BATCH", "8")), 64


def vgg16():
    layers, channels = [], 3
    for stage, depth in enumerate([2, 2, 3, 3, 3]):
        for _ in range(depth):
            out = 64 * [1, 2, 4, 8, 8][stage]
            layers += [nn.Conv2d(channels, out, 3, padding=1),
                       nn.ReLU(inplace=True)]
            channels = out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(),
        nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, CLASSES))


def data_parallel(model):
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def step_of_vgg(world):
    model = data_parallel(vgg16().to(memory_format=torch.channels_last))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9,
                                weight_decay=5e-4, fused=True)

    def step():
        x = torch.randn(IMAGES // world, 3, 224, 224)
        y = torch.randint(CLASSES, (IMAGES // world,))
        loss = F.cross_entropy(
            model(x.to(memory_format=torch.channels_last)), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss
    return step


class ShardedBlock(torch_gpt.Block):
    """A block whose q, k and v are three layers, so that each is split by
    heads."""

    def __init__(self, c, h, bias, gelu):
        super().__init__(c, h, bias, gelu)
        del self.qkv
        self.q, self.k, self.v = (nn.Linear(c, c, bias=bias)
                                  for _ in range(3))
        self.width = c // h

    def forward(self, x):
        b, t, _ = x.shape
        n = self.n1(x)
        q, k, v = (a(n).view(b, t, -1, self.width).transpose(1, 2)
                   for a in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(a.transpose(1, 2).reshape(b, t, -1))
        return x + self.w2(F.gelu(self.w1(self.n2(x)), approximate=self.gelu))


def tensor_parallel(model, world):
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)
    mesh = dist.init_device_mesh("cpu", (world,))
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "q": ColwiseParallel(), "k": ColwiseParallel(),
            "v": ColwiseParallel(), "wo": RowwiseParallel(),
            "w1": ColwiseParallel(), "w2": RowwiseParallel()})
    return model


def zero3(model, world):
    from torch.distributed.fsdp import fully_shard
    mesh = dist.init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def clip(parameters):
    """Scales gradients to a norm of 1; DTensors and others together, which
    clip_grad_norm_ refuses."""
    shards = [p.grad for p in parameters if hasattr(p.grad, "to_local")]
    whole = [p.grad for p in parameters if not hasattr(p.grad, "to_local")]
    total = torch.zeros(())
    if shards:
        placed = [g for g in shards if g.placements[0].is_shard()]
        whole += [g for g in shards if not g.placements[0].is_shard()]
        norms = torch._foreach_norm([local(g) for g in placed])
        total = torch.stack(norms).square().sum()
        dist.all_reduce(total)
    if whole:
        norms = torch._foreach_norm([local(g) for g in whole])
        total = total + torch.stack(norms).square().sum()
    scale = torch.clamp(1 / (total.sqrt() + 1e-6), max=1.0)
    torch._foreach_mul_([local(p.grad) for p in parameters], scale)


def step_of_gpt(case, rank, world):
    _, _, *rest = torch_gpt.SIZES["gpt2"]
    rest[3] = 4  # layers
    if case == "tensor":
        torch_gpt.Block = ShardedBlock
    model = torch_gpt.GPT(T, *rest)
    model = {"gpt2": lambda m, _: data_parallel(m), "zero3": zero3,
             "tensor": tensor_parallel}[case](model, world)
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() == 2 and is_shard
                          == hasattr(p, "to_local")], "weight_decay": 0.1}
              for is_shard in (False, True)]
    groups += [{"params": [p for p in parameters if p.dim() != 2 and is_shard
                           == hasattr(p, "to_local")], "weight_decay": 0.0}
               for is_shard in (False, True)]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=1.0,
                                  betas=(0.9, 0.95), fused=True)
    data = torch_gpt.tokens("gpt2")
    shares = 1 if case == "tensor" else world
    random = torch.Generator().manual_seed(1 if case == "tensor" else rank)
    done = 0

    def step():
        nonlocal done
        done += 1
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * min(1, done / 700)
        at = torch.randint(len(data) - T - 1, (BATCH // shares,),
                           generator=random).tolist()
        x = torch.stack([data[i:i + T] for i in at])
        y = torch.stack([data[i + 1:i + 1 + T] for i in at])
        loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip(parameters)
        optimizer.step()
        return loss
    return step


def main():
    case = sys.argv[1]
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)  # the same parameters on all ranks
    step = (step_of_vgg(world) if case == "vgg16"
            else step_of_gpt(case, rank, world))
    torch.manual_seed(1 if case == "tensor" else rank)

    def told_step():
        if rank == 0:
            dist.broadcast(torch.ones(1), 0)
        loss = step().detach().clone()
        dist.all_reduce(loss)
        return loss.item() / world

    if rank == 0:
        serve(told_step)
        dist.broadcast(torch.zeros(1), 0)
    else:
        go = torch.zeros(1)
        while dist.broadcast(go, 0) or go.item():
            told_step()
    dist.destroy_process_group()


main()

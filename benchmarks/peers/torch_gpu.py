"""The time of a training step in PyTorch eager on a GPU, the way a careful user
writes it; prints milliseconds, the median of 20 steps after 5.

    python3 torch_gpu.py gpt2|gpt2-50304|resnet50 [compile]

gpt2: 8 sequences of 1,024 tokens, bf16 by autocast, fused attention, fused
AdamW, gradient clipping; gpt2-50304 has that many words, a multiple of 128, of
which the last 47 never occur.  resnet50: 32 images, f32 without TF32, channels last,
fused SGD.  Data are on the GPU.  `compile` goes through torch.compile.  Needs
torch with CUDA (resnet50 torchvision too).
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F

WARM, TIMED = 5, 20


def gpt2(wrap, words=50257):
    from torch_gpt import GPT, SIZES

    _, _, v, c, h, layers, bias, gelu = SIZES["gpt2"]
    batch, t = 8, 1024
    model = GPT(t, words, c, h, layers, bias, gelu).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True,
                                  betas=(0.9, 0.95), weight_decay=0.1)
    x = torch.randint(v, (batch, t), device="cuda")
    y = torch.randint(v, (batch, t), device="cuda")
    run = wrap(model)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = run(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def resnet50(wrap):
    import torchvision

    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50().cuda()
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9,
                                weight_decay=1e-4, fused=True)
    x = torch.randn(32, 3, 224, 224, device="cuda").to(
        memory_format=torch.channels_last)
    y = torch.randint(1000, (32,), device="cuda")
    run = wrap(model)

    def step():
        loss = F.cross_entropy(run(x), y, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


def main():
    torch.manual_seed(1)
    wrap = torch.compile if "compile" in sys.argv[2:] else lambda model: model
    step = {"gpt2": gpt2, "resnet50": resnet50,
            "gpt2-50304": lambda wrap: gpt2(wrap, 50304)}[sys.argv[1]](wrap)
    times = []
    for i in range(WARM + TIMED):
        begin = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        if i >= WARM:
            times.append(1e3 * (time.perf_counter() - begin))
    assert torch.isfinite(loss)
    print("%.2f" % statistics.median(times))


main()

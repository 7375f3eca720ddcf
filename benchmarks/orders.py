"""Which of two plans is faster, and where that changes: what published systems
found, as commands.

    python3 benchmarks/orders.py DNNC FOLDER [--plans PLANS] [CHECK ...]

Writes plans and clusters into FOLDER, asks `dnnc simulate` and prints a table of
commands, steps and waiting, to be run there again one by one.  A plan of PLANS
takes the place of that of the same name, as one that a search has found.  CHECK
is the name of a function of this file or of stage_orders.py; all without it.
Exit status 1: an order is not the published one, and no reason is known.
"""
import os
import sys

import stage_orders
from order_tables import Orders, cluster, ethernet, nvlink, plan

TENSOR = "shard H, F, V over tensor"
SEQUENCE = ["shard x[0]: B over data, T over tensor",
            "shard block.x: B over data, T over tensor"]
ATTENTION_CORE = "block.attn.dot[1], block.attn.s, block.attn.mask, block.attn.p"
# Convolutions share out the samples, all three linear layers their weights.
WEIRD_TRICK = ["shard image.x, x[7]: N over data", "replicate x[8], x[10]",
               "shard linear[0].w, linear[0].b: O over data",
               "shard linear[1].w: I over data",
               "shard linear[2].w, linear[2].b: O over data"]
FILES = {
    "a100.cluster": cluster("a100_80g", nvlink("300GB/s")),
    "selene.cluster": cluster(
        "a100_80g", nvlink("300GB/s"), "pod { count = 96; link = 24GB/s; "
        "links = 8; latency = 9.6us; kind = fat_tree }"),
    "full.plan": plan("data = 1; tensor = 8", TENSOR, "remat block"),
    "core.plan": plan("data = 1; tensor = 8", TENSOR, *SEQUENCE,
                      "remat " + ATTENTION_CORE),
    "zero3.plan": plan("data = 768", "zero = 3", "remat block"),
    "tensor.plan": plan("data = 96; tensor = 8", "zero = 2", TENSOR, *SEQUENCE,
                        "remat block"),
    "v100.cluster": cluster("v100_16g", nvlink("150GB/s")),
    "h100.cluster": cluster("h100_sxm", nvlink("450GB/s")),
    "eight1.cluster": cluster("v100_16g", ethernet(8, "1Gb/s")),
    "eight10.cluster": cluster("v100_16g", ethernet(8, "10Gb/s")),
    "trick.plan": plan("data = 8", *WEIRD_TRICK),
}
WORKERS = [1, 2, 4, 8, 16, 32]
GPUS = ["k80", "titan_x", "v100_16g"]
for _workers in {*WORKERS, 8}:
    FILES[f"data{_workers}.plan"] = plan(f"data = {_workers}")
for _gpu in GPUS:
    FILES[f"{_gpu}.cluster"] = cluster(_gpu, ethernet(32, "10Gb/s"))


def recomputation(orders):
    model = ("gpt2.dnn B=4 T=2048 V=51200 C=6144 H=64 L=48 "
             "--disable attention")
    full, core = orders.table(
        "Recomputation, 22B shapes, tensor parallelism over 8 A100, batch of 4 "
        "(Korthikanti et al. 2022)",
        [("a100", "full", model), ("a100", "core", model)])
    orders.judge("sequence sharding with the attention core recomputed beats "
                 "full recomputation and fits, by "
                 f"{100 * (full['step_s'] / core['step_s'] - 1):.0f} %",
                 core["step_s"] < full["step_s"] and core["fits"])


def crossing(points):
    """Where the line through neighbours of (x, ratio) crosses 1."""
    for (x, a), (y, b) in zip(points, points[1:]):
        if (a - 1) * (b - 1) <= 0 and a != b:
            return x + (y - x) * (1 - a) / (b - a)
    return None


def zero3(orders):
    found = orders.table(
        "ZeRO 3 against TP 8 x DP 96, 175B on 768 A100, 1 to 4 sequences a GPU, "
        "micro-batches as memory needs (Narayanan et al. 2021, table 2)",
        [("selene", how, f"gpt3.dnn B={768 * each} --microbatches "
          f"{2 if how == 'tensor' and each > 2 else 1}")
         for each in (4, 3, 2, 1) for how in ("zero3", "tensor")])
    points = [(each, z["step_s"] / t["step_s"]) for each, z, t in
              zip((4, 3, 2, 1), found[::2], found[1::2])]
    print("time of ZeRO 3 over that of TP x DP: " + ", ".join(
        f"{ratio:.2f} at {each}" for each, ratio in points))
    where = crossing(points)
    orders.judge(
        "ZeRO 3 falls behind as the batch falls"
        + (f", from {where:.1f} sequences a GPU on" if where else ""),
        where and all(a < b for (_, a), (_, b) in zip(points, points[1:]))
        and all(price["fits"] for price in found))


def exposed(orders):
    found = orders.table(
        "VGG-16, data parallelism at 10 Gbit/s, 32 images a worker "
        "(Harlap et al., PipeDream, 2018)",
        [(gpu, f"data{n}", f"vgg16.dnn N={32 * n}")
         for gpu in GPUS for n in WORKERS])
    n = len(WORKERS)
    shares = [[price["waits"] for price in found[i * n:(i + 1) * n]]
              for i in range(len(GPUS))]
    orders.judge("the exposed share grows with workers, 1 to 32, on each GPU",
                 all(a < b for share in shares
                     for a, b in zip(share, share[1:])))
    orders.judge("and from K80 to Titan X to V100 at 2 workers and more",
                 all(a < b for one, next_one in zip(shares, shares[1:])
                     for a, b in zip(one[1:], next_one[1:])))


def weird_trick(orders):
    places = [("eight1", 256), ("eight1", 128), ("eight10", 128),
              ("v100", 256), ("a100", 256), ("h100", 256), ("v100", 128)]
    found = orders.table(
        "AlexNet on 8 GPUs, data parallelism and one weird trick (Krizhevsky "
        "2014) over 1 and 10 Gbit/s and inside nodes with NVLink",
        [(where, how, f"alexnet.dnn N={8 * each}") for where, each in places
         for how in ("data8", "trick")])
    gains = [data["step_s"] / trick["step_s"]
             for data, trick in zip(found[::2], found[1::2])]
    orders.judge("one weird trick is faster over slow links: "
                 + ", ".join(f"{gain:.2f} x" for gain in gains[:3]),
                 all(gain > 1 for gain in gains[:3]))
    orders.judge("and not inside a node with NVLink, with 256 images a GPU: "
                 + ", ".join(f"{gain:.3f} x" for gain in gains[3:6]),
                 all(gain <= 1 for gain in gains[3:6]))
    waits = [1e3 * found[i]["step_s"] * found[i]["waits"] for i in (12, 13)]
    print(f"with 128 images a GPU (not judged) {gains[6]:.3f} x: there it waits "
          f"{waits[1]:.2f} ms, data parallelism {waits[0]:.2f} ms, but each "
          "rank updates an eighth of the linear layers")


CHECKS = [recomputation, zero3, exposed, weird_trick, *stage_orders.CHECKS]


def main():
    words = sys.argv[1:]
    plans = words[words.index("--plans") + 1] if "--plans" in words else None
    words = [w for w in words if w not in ("--plans", plans)]
    if len(words) < 2:
        sys.exit(__doc__)
    os.makedirs(words[1], exist_ok=True)
    orders = Orders(words[0], words[1], plans)
    orders.write(FILES)
    for check in CHECKS:
        if check.__name__ in words[2:] or not words[2:]:
            check(orders)
    sys.exit(0 if orders.are_good else 1)


main()

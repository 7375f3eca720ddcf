"""Records fifty steps of every optimizer and schedule on optimizers.dnn, and
of groups of parameters on groups.dnn and sgd_groups.dnn.

    python3 record_optimizers.py     (needs torch 2.5, numpy and safetensors)

Each line of a text file beside a model names a case and settings of `train`.  A case that
MODEL.safetensors has already keeps its record.  The steps
are those of torch.optim where it has the optimizer, else of the papers'
formulas, written out here; all in f64.  Writes MODEL.csv, the data, and
MODEL.safetensors: start/PATH, CASE/PATH after the last step and
CASE/ema/PATH.
"""
import math
import os
import re

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file

from recorder import write_safetensors

STEPS = 50

# Natural shape; shape for optimizers that look at matrices (torch's classes
# take the last two dims as one, and leave vectors alone): outputs by inputs.
SHAPES = {
    "filter": ((3, 2, 3, 3), (3, 18)),
    "w": ((12, 2, 3), (12, 6)),
    "b": ((2, 3), (6,)),
    "heads": ((2, 3, 4), (2, 3, 4)),
    "emb": ((5, 4), (20,)),
    "wo": ((2, 4, 3), (8, 3)),
    "bo": ((3,), (3,)),
}
OUTPUTS_FIRST = {"filter"}  # the others have their inputs first
DECAYS = {"filter", "w", "heads", "emb", "wo"}


def loss_of(p, x, i, y):
    p = {k: v.reshape(SHAPES[k][0]) for k, v in p.items()}
    h = torch.tanh(F.conv2d(x, p["filter"])).flatten(1)
    h = torch.tanh(torch.einsum("bp,phd->bhd", h, p["w"]) + p["b"])
    h = torch.tanh(torch.einsum("bhd,hdf->bhf", h, p["heads"])
                   + p["emb"][i][:, None])
    h = torch.einsum("bhf,hfk->bk", h, p["wo"]) + p["bo"]
    return F.cross_entropy(h, y)


# ---- learning rates ----

def parse(text):
    """'cosine(0.2, floor=0.1)' -> ('cosine', [0.2], {'floor': 0.1})"""
    name, rest = re.fullmatch(r"(\w+)\((.*)\)", text).groups()
    names = {"true": True, "all": "all"}
    call = eval(f"(lambda *a, **k: (a, k))({rest})", {
        **{"false": False}, **names, **{s: (lambda s: lambda *a, **k: (s, a, k))(s)
                    for s in ("cosine", "linear_decay", "inverse_sqrt",
                              "steps", "cosine_restarts", "wsd")}})
    return name, call[1]


def rate(lr, t):
    if not isinstance(lr, tuple):
        return lr
    kind, args, named = lr
    peak, warmup = args[0], named.get("warmup", 0)
    floor = named.get("floor", 0)
    if kind == "steps":  # one step is an epoch here
        return peak * named["factor"] ** ((t - 1) // named["every"])
    if t <= warmup:
        return peak * t / warmup
    if kind == "cosine_restarts":  # one step is an epoch here, too
        at, length = t - 1 - warmup, named["every"]
        while at >= length:
            at -= length
            length *= named.get("growth", 1)
        return floor + (peak - floor) * (1 + math.cos(math.pi * at / length)) / 2
    if kind == "wsd":
        tail = named.get("decay", 0.1) * STEPS
        left = STEPS - t
        return peak if left >= tail else floor + (peak - floor) * left / tail
    if kind == "inverse_sqrt":
        return peak * math.sqrt(warmup / t)
    share = (t - warmup) / (STEPS - warmup)
    if kind == "linear_decay":
        return floor + (peak - floor) * (1 - share)
    return floor + (peak - floor) * (1 + math.cos(math.pi * share)) / 2


# ---- optimizers that torch does not have ----

class Plain(torch.optim.Optimizer):
    """Calls step(p, g, state, t, group) for each parameter."""

    def __init__(self, groups, step, **defaults):
        super().__init__(groups, defaults)
        self.one = step

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p),
                                 v=torch.zeros_like(p))
                state["t"] += 1
                self.one(p, p.grad, state, state["t"], group)


def adam_direction(g, s, t, betas, eps):
    b1, b2 = betas
    s["m"] = b1 * s["m"] + (1 - b1) * g
    s["v"] = b2 * s["v"] + (1 - b2) * g * g
    return (s["m"] / (1 - b1 ** t)) / (torch.sqrt(s["v"] / (1 - b2 ** t)) + eps)


def lamb(p, g, s, t, o):  # You et al. 2020, algorithm 2
    u = adam_direction(g, s, t, o["betas"], o["eps"]) + o["weight_decay"] * p
    a, b = p.norm().item(), u.norm().item()
    p -= o["lr"] * (a / b if a > 0 and b > 0 else 1) * u


def lars(p, g, s, t, o):  # You et al. 2017, algorithm 1
    d, local = o["weight_decay"], 1
    if o["decays"]:
        a, b = p.norm().item(), g.norm().item()
        if a > 0 and b > 0:
            local = o["trust"] * a / (b + d * a)
    s["m"] = o["momentum"] * s["m"] + o["lr"] * local * (g + d * p)
    p -= s["m"]


def lion(p, g, s, t, o):  # Chen et al. 2023, algorithm 2
    b1, b2 = o["betas"]
    u = torch.sign(b1 * s["m"] + (1 - b1) * g)
    s["m"] = b2 * s["m"] + (1 - b2) * g
    p -= o["lr"] * (u + o["weight_decay"] * p)


def newton_schulz(g):  # Jordan et al. 2024, on one matrix
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    if g.shape[0] > g.shape[1]:
        x = x.T
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def muon(p, g, s, t, o):
    d = o["weight_decay"]
    if o["outputs"] is None:
        u = adam_direction(g, s, t, (0.9, 0.999), 1e-8)
        p *= 1 - o["lr"] * d
        p -= o["lr"] * u
        return
    s["m"] = o["momentum"] * s["m"] + g
    u = g + o["momentum"] * s["m"]
    u = (torch.stack([newton_schulz(x) for x in u]) if u.ndim == 3
         else newton_schulz(u))
    inputs = p[0].numel() // o["outputs"] if p.ndim == 3 else (
        p.numel() // o["outputs"])
    p -= o["lr"] * d * p + o["lr"] * max(1, o["outputs"] / inputs) ** 0.5 * u


def outputs_of(name):
    shape = SHAPES[name][1]
    if len(shape) == 1:
        return None
    return shape[0] if name in OUTPUTS_FIRST else shape[-1]


def read_groups(base):
    """The arguments of each parameter that a group of the model has."""
    own = {}
    for paths, lines in re.findall(r"\bgroup (.*) \{(.*)\}",
                                   open(base + ".dnn").read()):
        lines = lines.replace("; ", ", ").strip()
        product = re.search(r"lr = (\w+\(.*?\)) \* ([0-9.]+)", lines)
        factor = re.search(r"lr = ([0-9.]+)x", lines) or product
        lines = re.sub(r"lr = [0-9.]+x(, )?", "", lines)
        if product:
            lines = lines.replace(product[0], "lr = " + product[1])
        args = parse(f"group({lines})")[1]
        if factor:
            args["factor"] = float(factor[2 if product else 1])
        own |= {path: args for path in paths.split(", ")}
    return own


CLASSES = {k.lower(): v for k, v in vars(torch.optim).items()
           if isinstance(v, type)}


def group_of(path, param, args):
    decays = path in DECAYS or args.get("decay_on") == "all"
    return {"params": [param], "outputs": outputs_of(path), "decays": decays,
            "weight_decay": args.get("decay", 0) if decays else 0, "args": args,
            **{k: args[k] for k in ("betas", "eps", "momentum", "nesterov")
               if k in args}}


def make(name, params, args, own):
    groups = [group_of(k, v, args | own.get(k, {})) for k, v in params.items()]
    betas = {"betas": args.get("betas", (0.9, 0.99) if name == "lion"
                               else (0.9, 0.999))}
    eps = {"eps": args.get("eps", 1e-8)}
    if name == "adafactor":  # caps lr at 1 / sqrt(t), which is above ours
        assert args["lr"] <= 1 / STEPS ** 0.5
        return torch.optim.Adafactor(groups, eps=(1e-30, 1e-3))
    if name == "lion":
        return Plain(groups, lion, lr=0, **betas)
    if name == "lamb":
        return Plain(groups, lamb, lr=0, **betas, **eps)
    if name == "lars":
        return Plain(groups, lars, lr=0, momentum=args.get("momentum", 0.9),
                     trust=args.get("trust", 1e-3))
    if name == "muon":
        return Plain(groups, muon, lr=0, momentum=args.get("momentum", 0.95))
    ours = {"lr", "decay", "decay_on"}  # the others are named as torch's
    return CLASSES[name](groups, lr=0.1, **{k: v for k, v in args.items()
                                            if k not in ours})


# ---- the cases ----

def run(start, data, settings, own):
    name, args = parse(settings["optimizer"])
    clip, ema = float(settings.get("clip", 0)), float(settings.get("ema", 0))
    params = {k: v.reshape(SHAPES[k][1]).clone().requires_grad_()
              for k, v in start.items()}
    average = {k: v.detach().clone() for k, v in params.items()}
    optimizer = make(name, params, args, own)
    for t in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = loss_of(params, *data)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(list(params.values()), clip)
        for group in optimizer.param_groups:
            group["lr"] = (rate(group["args"]["lr"], t)
                           * group["args"].get("factor", 1))
        optimizer.step()
        for k, v in params.items():
            average[k] = ema * average[k] + (1 - ema) * v.detach()
    print(f"{settings['optimizer']:60} loss {loss.item():.4f}")
    out = {k: v.detach().reshape(SHAPES[k][0]).numpy()
           for k, v in params.items()}
    if ema:
        out |= {"ema/" + k: v.reshape(SHAPES[k][0]).numpy()
                for k, v in average.items()}
    return out


def record(base, start, x, i, y):
    with open(base + ".csv", "w") as file:
        for row in zip(x, i, y):
            file.write(",".join(str(v) for v in [*row[0].flatten(), *row[1:]])
                       + "\n")
    data = (torch.tensor(x / 8), torch.tensor(i), torch.tensor(y))
    out = {"start/" + k: v for k, v in start.items()}
    if os.path.exists(base + ".safetensors"):
        out |= load_file(base + ".safetensors")
    for line in open(base + ".txt"):
        case, *settings = line.split()
        if f"{case}/b" in out:
            continue
        settings = dict(s.split("=", 1) for s in settings)
        got = run({k: torch.tensor(v) for k, v in start.items()}, data,
                  settings, read_groups(base))
        out |= {f"{case}/{k}": v for k, v in got.items()}
    write_safetensors(base + ".safetensors", out)


def main():
    random = np.random.default_rng(11)
    start = {k: random.normal(0, 0.5, s[0]).astype("f4").astype("f8")
             for k, s in SHAPES.items()}
    x = random.integers(-12, 13, (8, 2, 4, 4))
    i = random.integers(0, 4, 8)  # the last row of emb is never read
    y = random.integers(0, 3, 8)
    for base in ("optimizers", "groups", "sgd_groups"):
        record(base, start, x, i, y)


if __name__ == "__main__":
    main()

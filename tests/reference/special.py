"""What PyTorch's pointwise operators and their gradients are at NaN, infinities,
zeros of both signs, the ends of f32 and a few numbers between, in f32 on a CPU.
Writes special.csv: operator, operands, value, gradient for each operand, where a
gradient of 1 comes in; empty where PyTorch has none.  tests/unit/special.c wants
records of every row of ir/ops.def that takes reals.

    python3 tests/reference/special.py
"""
import itertools
import os
import re

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
NAN, INF = float("nan"), float("inf")
MOST, LEAST = torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny
ONE = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5,
       3.0, -3.0, 6.0, -6.0, 20.0, -20.0, 100.0, -100.0, 1e6, -1e6, MOST, -MOST,
       LEAST, -LEAST]
TWO = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, MOST, -MOST]



def each(function):
    """PyTorch takes the second operand as one number."""
    return lambda a, b: torch.cat([function(a[i:i + 1], b[i].item())
                                   for i in range(len(a))])


# Operators whose names differ from those of torch; None: not compared.
NAMES = {
    "not": None, "and": None, "or": None, "floordiv": None, "mod": None,
    "neg": torch.neg, "relu": F.relu, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
    "elu": each(F.elu), "leaky_relu": each(F.leaky_relu),
    "finite": torch.isfinite, "stop_gradient": lambda a: a.detach(),
    "select": lambda c, a, b: torch.where(c > 0, a, b),
}


def rows():
    """(name, number of operands) of the pointwise rows of ops.def."""
    text = open(os.path.join(HERE, "../../ir/ops.def")).read()
    for n, name in re.findall(r"^PW([123])\((\w+),", text, re.M):
        yield name, int(n)


def numbers(x):
    return [f"{v:.9g}" if v == v else "nan" for v in x.double().tolist()]


def record(name, n, out):
    function = NAMES[name] if name in NAMES else (
        getattr(torch, name, None) or getattr(F, name))
    if function is None:
        return
    choices = [ONE] if n == 1 else [TWO] * n if n == 2 else [[0.0, 1.0], TWO, TWO]
    points = list(itertools.product(*choices))
    operands = [torch.tensor(column, requires_grad=True)
                for column in zip(*points)]
    y = function(*operands)
    grads = [None] * n
    if y.requires_grad:
        grads = torch.autograd.grad(y, operands, torch.ones_like(y),
                                    allow_unused=True)
    columns = [numbers(x) for x in (*operands, y)]
    columns += [numbers(g) if g is not None else [""] * len(points)
                for g in grads]
    for row in zip(*columns):
        out.write(",".join((name, *row)) + "\n")


def main():
    with open(os.path.join(HERE, "special.csv"), "w") as out:
        for name, n in rows():
            record(name, n, out)


if __name__ == "__main__":
    main()

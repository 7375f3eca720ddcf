#!/usr/bin/env python3
"""Records what PyTorch computes, in f64, for scalar expressions of the language:
losses, and operators that are summed to a scalar. It writes expressions.def.

A row is EXPRESSION(text, value, gradient of p, gradient of q).  p and q are
[N:6, K:4], w is [K:4], y and z are integers [N:6]; tests/unit/expressions.c
fills them with the same formulas.  Norms below the 1e-8 of `cosine` are left out:
there PyTorch's gradient is not that of its own formula.
"""
import json

import torch
import torch.nn.functional as F

N, K = 6, 4
i = torch.arange(N * K, dtype=torch.float64).reshape(N, K)
y = (torch.arange(N) * 7 % 5) - 1  # -1 is to be ignored
z = torch.arange(N) * 5 % 4
w = 0.5 + 0.75 * torch.arange(K, dtype=torch.float64)
table = torch.tensor([1, 2, 0.5, 0], dtype=torch.float64)


def soft(q):
    return torch.softmax(q, 1)


def sharp(q):
    """Probabilities some of which are 0."""
    return torch.relu(q).detach()


def excluded(products):
    """Products of the rows before each row."""
    return torch.cat([torch.ones(1, K, dtype=torch.float64), products[:-1]])


def ce(p, target, **more):
    return F.cross_entropy(p, target, **more)


def resize(x, n, m, mode):
    """resize(x, (N, K), (n, m), mode): F.interpolate of a [1, 1, N, K] tensor."""
    modes = {"nearest": "nearest-exact", "linear": "bilinear", "cubic": "bicubic"}
    corners = None if mode == "nearest" else False
    return F.interpolate(x[None, None], (n, m), mode=modes[mode],
                         align_corners=corners)[0, 0]


def resize_row(n, m, of_p, of_q):
    """Two resized tensors, multiplied and summed."""
    calls = [f'resize({x}, (N, K), ({n}, {m}), "{mode}")'
             for x, mode in (("p", of_p), ("q", of_q))]
    return (f"sum({calls[0]} * {calls[1]})", lambda p, q: (
        resize(p, n, m, of_p) * resize(q, n, m, of_q)).sum())


EXPRESSIONS = [
    ("cross_entropy(p, z, K)", lambda p, q: ce(p, z)),
    ("cross_entropy(p, z, K, smooth = 0.3)",
     lambda p, q: ce(p, z, label_smoothing=0.3)),
    ("cross_entropy(p, y, K, ignore = -1, smooth = 0.3)",
     lambda p, q: ce(p, y, ignore_index=-1, label_smoothing=0.3)),
    ("cross_entropy(p, z, K, weight = w)", lambda p, q: ce(p, z, weight=w)),
    ("cross_entropy(p, z, K, weight = [1, 2, 0.5, 0])",
     lambda p, q: ce(p, z, weight=table)),
    ("cross_entropy(p, y, K, ignore = -1, weight = w, smooth = 0.3)",
     lambda p, q: ce(p, y, weight=w, ignore_index=-1, label_smoothing=0.3)),
    ("cross_entropy(p, z, K, ignore = 0, weight = [1, 2, 0.5, 0], smooth = 1)",
     lambda p, q: ce(p, z, weight=table, ignore_index=0, label_smoothing=1)),
    ("cross_entropy(p, softmax(q, K), K)", lambda p, q: ce(p, soft(q))),
    ("cross_entropy(p, q, K)", lambda p, q: ce(p, q)),
    ("cross_entropy(p, softmax(q, K), K, smooth = 0.3)",
     lambda p, q: ce(p, soft(q), label_smoothing=0.3)),
    ("cross_entropy(p, softmax(q, K), K, weight = w, smooth = 0.3)",
     lambda p, q: ce(p, soft(q), weight=w, label_smoothing=0.3)),
    ("mse(p, q)", lambda p, q: F.mse_loss(p, q)),
    ("l1(p, q)", lambda p, q: F.l1_loss(p, q)),
    ("l1(p, p)", lambda p, q: F.l1_loss(p, p)),
    ("huber(p, q)", lambda p, q: F.huber_loss(p, q)),
    ("huber(p, q, delta = 2.5)", lambda p, q: F.huber_loss(p, q, delta=2.5)),
    ("bce(p, sigmoid(q))", lambda p, q: F.binary_cross_entropy_with_logits(
        p, torch.sigmoid(q))),
    ("bce(p, sigmoid(q), pos_weight = 3)",
     lambda p, q: F.binary_cross_entropy_with_logits(
         p, torch.sigmoid(q), pos_weight=torch.tensor(3.0))),
    ("bce(p * 40, sigmoid(q), pos_weight = w)",
     lambda p, q: F.binary_cross_entropy_with_logits(
         p * 40, torch.sigmoid(q), pos_weight=w)),
    ("kl(log_softmax(p, K), softmax(q, K), K)",
     lambda p, q: F.kl_div(torch.log_softmax(p, 1), soft(q),
                           reduction="batchmean")),
    ("kl(log_softmax(p, K), stop_gradient(relu(q)), K)",
     lambda p, q: F.kl_div(torch.log_softmax(p, 1), sharp(q),
                           reduction="batchmean")),
    ("cosine(p, q, K)",
     lambda p, q: (1 - F.cosine_similarity(p, q, dim=1)).mean()),
    ("cosine(p, q, N)",
     lambda p, q: (1 - F.cosine_similarity(p, q, dim=0)).mean()),
    ("sum(sort(p, N) * q) + sum(sort(q, K) * p)",
     lambda p, q: (p.sort(0)[0] * q).sum() + (q.sort(1)[0] * p).sum()),
    ("sum(argsort(round(p), N) * q + gather(p, argsort(q, K), K) * q)",
     lambda p, q: (p.round().argsort(dim=0, stable=True) * q +
                   p.gather(1, q.argsort(1)) * q).sum()),
    ("sum(cumprod(p, N) * q)", lambda p, q: (p.cumprod(0) * q).sum()),
    ("sum(cumprod(relu(p), K) * cumprod(q, N, exclusive = true))",
     lambda p, q: (p.relu().cumprod(1) * excluded(q.cumprod(0))).sum()),
    resize_row(9, 3, "cubic", "linear"),
    resize_row(9, 3, "nearest", "cubic"),
    resize_row(12, 8, "linear", "cubic"),
    resize_row(12, 8, "cubic", "nearest"),
    resize_row(3, 2, "nearest", "linear"),
    resize_row(3, 2, "cubic", "cubic"),
    resize_row(11, 17, "linear", "cubic"),
    resize_row(5, 15, "nearest", "linear"),
    resize_row(6, 7, "cubic", "linear"),
    resize_row(1, 1, "nearest", "cubic"),
    resize_row(1, 9, "linear", "linear"),
    ('sum(resize(resize(p, (N, K), 1, "linear"), (N, K), (6, 4), "cubic") * q)',
     lambda p, q: (resize(resize(p, 1, 1, "linear"), 6, 4, "cubic") * q).sum()),
    ("sum(tanh(upsample(p * q, (N, K), (3, 2))))",
     lambda p, q: torch.tanh(resize(p * q, 18, 8, "nearest")).sum()),
    ('sum(tanh(upsample(p * q, (N, K), (3, 2), "linear")))',
     lambda p, q: torch.tanh(resize(p * q, 18, 8, "linear")).sum()),
    ('sum(tanh(upsample(p * q, (N, K), (2, 5), "cubic")))',
     lambda p, q: torch.tanh(resize(p * q, 12, 20, "cubic")).sum()),
    ('sum(tanh(upsample(p * q, K, 4, "cubic")))',
     lambda p, q: torch.tanh(resize(p * q, 6, 16, "cubic")).sum()),
]


def numbers(tensor):
    values = torch.zeros(N, K) if tensor is None else tensor
    rows = [", ".join(f"{v:.17g}" for v in row) for row in values.tolist()]
    return ",\n       ".join(rows)


with open("expressions.def", "w") as out:
    out.write("""/*
 * expressions.def -- written by expressions.py: expressions of the language, with
 * the value and the gradients in p and q that PyTorch computes.
 */
/* clang-format off */
""")
    for text, function in EXPRESSIONS:
        p = (2 * torch.sin(1.7 * i + 0.3)).requires_grad_()
        q = (1.5 * torch.cos(0.9 * i + 0.5)).requires_grad_()
        value = function(p, q)
        value.backward()
        quoted = json.dumps(text)
        out.write(f'EXPRESSION({quoted}, {value.item():.17g},\n'
                  f"  LIST({numbers(p.grad)}),\n  LIST({numbers(q.grad)}))\n")
    out.write("#undef EXPRESSION\n#undef LIST\n/* clang-format on */\n")

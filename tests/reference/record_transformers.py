"""Records what PyTorch computes for the transformer families of this folder.

    python3 record_transformers.py     (needs torch and numpy; results are kept)

As record.py, and for each MODEL further: value/PATH, some of the activations;
ten/PATH, the parameters after ten steps of sgd with momentum 0.9 on the same
data; f32_error_ten/PATH, how far PyTorch's own f32 is off there.  Experts are
computed for every token and what was not chosen or had no slot is left out, so
nothing of how dnnc does it is repeated here.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F

from record import rms, rotary, write_safetensors

values = {}  # activations of the last run, by path
margins = []  # how far a choice was from being another one


def keep(path, x):
    values[path] = x.detach().double().numpy()
    return x


def norm(x, p, b):
    return F.layer_norm(x, x.shape[-1:], p[b + "g"], p[b + "b"], eps=1e-12)


def linear(x, p, b):
    return x @ p[b + "w"] + p[b + "b"]


def bert(p, data):
    tok, seg, y = data[:, :7], data[:, 7:14], data[:, 14:]
    x = norm(p["wte"][tok] + p["wpe"] + p["wse"][seg], p, "norm[0].")
    for i in range(2):
        b = f"block[{i}]."
        a = b + "attention."
        q, k, v = (torch.einsum("btc,chd->bthd", x, p[a + "w" + w])
                   + p.get(a + "b" + w, 0) for w in "qkv")
        s = torch.einsum("bthd,bshd->bths", q, k) / q.shape[-1] ** 0.5
        s = s.masked_fill((tok == 0)[:, None, None, :], -torch.inf)
        o = torch.einsum("bths,bshd->bthd", torch.softmax(s, -1), v)
        o = torch.einsum("bthd,hdc->btc", o, p[a + "wo"]) + p[a + "bo"]
        x = norm(keep(b + "add[0]", x + o), p, b + "norm[0].")
        h = linear(F.gelu(linear(x, p, b + "linear[0].")), p, b + "linear[1].")
        x = norm(x + h, p, b + "norm[1].")
    x = norm(F.gelu(linear(x, p, "linear.")), p, "norm[1].")
    logits = x @ p["wte"].T + p["bv"]
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1)


def experts(x, p, b, top, capacity, expert):
    """Returns the result and the balance loss (Switch, equation 4)."""
    prob = torch.softmax(x @ p[b + "wg"], -1)
    n, tokens, n_experts = prob.shape
    sorted_, order = torch.sort(prob, -1, descending=True)
    for j in range(top):
        margins.append((sorted_[..., j] - sorted_[..., j + 1]).min().item())
    slots = math.ceil(top * tokens * capacity / n_experts)
    used = np.zeros((n, n_experts), int)
    weight = sorted_[..., :top]
    if top > 1:
        weight = weight / weight.sum(-1, keepdim=True)
    kept = torch.zeros_like(weight)
    for g in range(n):
        for j in range(top):
            for t in range(tokens):
                e = order[g, t, j].item()
                kept[g, t, j] = float(used[g, e] < slots)
                used[g, e] += 1
    assert 0 < kept.sum() < kept.numel()
    y = expert(x)  # [b, t, e, c]
    y = torch.gather(y, 2, order[..., :top, None].expand(-1, -1, -1,
                                                         y.shape[-1]))
    share = F.one_hot(order[..., 0], n_experts).to(x.dtype).mean(1)
    balance = n_experts * (share * prob.mean(1)).sum(-1).mean()
    return ((weight * kept)[..., None] * y).sum(2), balance


def mixtral(p, data):
    tok, y = data[:, :6], data[:, 6:]
    h, extra = p["wte"][tok], 0
    t = tok.shape[1]
    causal = torch.tril(torch.ones(t, t, dtype=torch.bool))
    for i in range(2):
        b = f"block[{i}]."
        n = rms(h, p[b + "rms[0].g"])
        q = rotary(torch.einsum("btc,cghd->btghd", n, p[b + "attn.wq"]))
        k = rotary(torch.einsum("btc,cgd->btgd", n, p[b + "attn.wk"]))
        v = torch.einsum("btc,cgd->btgd", n, p[b + "attn.wv"])
        s = torch.einsum("btghd,bsgd->bghts", q, k) / q.shape[-1] ** 0.5
        a = torch.softmax(s.masked_fill(~causal, -torch.inf), -1)
        o = torch.einsum("bghts,bsgd->btghd", a, v)
        h = keep(b + "x", h + torch.einsum("btghd,ghdc->btc", o,
                                           p[b + "attn.wo"]))
        m = b + "experts."

        def expert(x):
            up = [torch.einsum("btc,ecf->btef", x, p[m + w])
                  for w in ("w1", "w3")]
            return torch.einsum("btef,efc->btec", F.silu(up[0]) * up[1],
                                p[m + "w2"])

        out, balance = experts(rms(h, p[b + "rms[1].g"]), p, m, 2, 0.75, expert)
        h, extra = h + out, extra + 0.125 * balance
    logits = rms(h, p["rms.g"]) @ p["out"]
    return F.cross_entropy(logits.flatten(0, 1), y.flatten()) + extra


def rms6(x, g):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g


def bias(w, n_query, n_key, causal):
    """T5's relative_position_bucket with 8 buckets up to distance 16."""
    n = torch.arange(n_query)[:, None] - torch.arange(n_key)
    buckets, place = 8, 0
    if not causal:
        buckets = 4
        place = (n < 0).long() * buckets
        n = n.abs()
    n = n.clamp(min=0)
    exact = buckets // 2
    far = exact + (torch.log(n.clamp(min=1).double() / exact)
                   / math.log(16 / exact) * (buckets - exact)).long()
    far = far.clamp(max=buckets - 1)
    return w[place + torch.where(n < exact, n, far)].permute(2, 0, 1)


def attend(p, b, x, m, bias_, causal=False):
    q = torch.einsum("btc,chd->bthd", x, p[b + "wq"])
    k = torch.einsum("bsc,chd->bshd", m, p[b + "wk"])
    v = torch.einsum("bsc,chd->bshd", m, p[b + "wv"])
    s = torch.einsum("bthd,bshd->bhts", q, k) + bias_
    if causal:
        s = s.masked_fill(torch.ones_like(s).triu(1).bool(), -torch.inf)
    o = torch.einsum("bhts,bshd->bthd", torch.softmax(s, -1), v)
    return torch.einsum("bthd,hdc->btc", o, p[b + "wo"])


def feed(p, b, x, sparse):
    if not sparse:
        return torch.relu(x @ p[b + "mlp.w1"]) @ p[b + "mlp.w2"], 0
    m = b + "experts."

    def expert(x):
        up = torch.relu(torch.einsum("btc,ecf->btef", x, p[m + "w1"]))
        return torch.einsum("btef,efc->btec", up, p[m + "w2"])

    out, balance = experts(x, p, m, 1, 1, expert)
    return out, 0.125 * balance


def switch(p, data):
    src, tgt = data[:, :9], data[:, 9:]
    m, extra = p["emb"][src], 0
    near = bias(p["buckets[0].w"], 9, 9, False)
    for i in range(2):
        b = f"encoder[{i}]."
        n = rms6(m, p[b + "rms[0].g"])
        m = keep(b + "x", m + attend(p, b + "attend.", n, n, near))
        out, loss = feed(p, b + "feed.", rms6(m, p[b + "rms[1].g"]), i == 1)
        m, extra = m + out, extra + loss
    m = rms6(m, p["rms[0].g"])
    x = p["emb"][F.pad(tgt, (1, 0))[:, :-1]]
    past = bias(p["buckets[1].w"], 7, 7, True)
    for i in range(2):
        b = f"decoder[{i}]."
        n = rms6(x, p[b + "rms[0].g"])
        x = keep(b + "x[0]",
                 x + attend(p, b + "attend[0].", n, n, past, True))
        x = keep(b + "x[1]", x + attend(p, b + "attend[1].",
                                        rms6(x, p[b + "rms[1].g"]), m, 0))
        out, loss = feed(p, b + "feed.", rms6(x, p[b + "rms[2].g"]), i == 1)
        x, extra = x + out, extra + loss
    logits = rms6(x, p["rms[1].g"]) @ p["emb"].T / p["emb"].shape[1] ** 0.5
    return F.cross_entropy(logits.flatten(0, 1), tgt.flatten()) + extra


# ---- recording ----

def train(model, start, data, rate, dtype, steps):
    """Parameters after the steps, and loss, gradients, values of the first."""
    p = {path: torch.tensor(v, dtype=dtype, requires_grad=True)
         for path, v in start.items()}
    moment = {path: torch.zeros_like(v) for path, v in p.items()}
    first = None
    for _ in range(steps):
        loss = model(p, data)
        grads = dict(zip(p, torch.autograd.grad(loss, list(p.values()))))
        first = first or (loss.item(), grads, dict(values))
        for path in p:
            moment[path] = 0.9 * moment[path] + grads[path]
            p[path] = (p[path] - rate * moment[path]).detach()
            p[path].requires_grad_()
    return {k: v.detach().double().numpy() for k, v in p.items()}, first


def error(got, exact):
    return np.array(np.linalg.norm(got - exact) / np.linalg.norm(exact))


def record(name, model, shapes, rows, rate, seed=7):
    random = np.random.default_rng(seed)
    start = {path: (random.normal(0, scale, shape) + shift)
             .astype("f4").astype("f8")
             for path, (shape, scale, shift) in shapes.items()}
    data = torch.tensor(rows)
    margins.clear()
    values.clear()
    ten, (loss, grads, kept) = train(model, start, data, rate, torch.float64,
                                     10)
    # With a choice that rounding could change nothing can be compared.
    if margins and min(margins) < 1e-3:
        return record(name, model, shapes, rows, rate, seed + 1)
    ten32, (_, grads32, _) = train(model, start, data, rate, torch.float32, 10)
    out = {"loss": np.array(loss)}
    for path, value in kept.items():
        out["value/" + path] = value
    for path in shapes:
        exact = grads[path].numpy()
        out["param/" + path] = start[path]
        out["grad/" + path] = exact
        out["f32_error/" + path] = error(grads32[path].double().numpy(), exact)
        out["ten/" + path] = ten[path]
        out["f32_error_ten/" + path] = error(ten32[path], ten[path])
    write_safetensors(name + ".safetensors", out)
    np.savetxt(name + ".csv", rows, fmt="%d", delimiter=",")
    print(name, "seed", seed, "loss", loss, "least margin", min(margins, default=None))


def main():
    random = np.random.default_rng(11)

    tok = random.integers(1, 23, (3, 7))
    tok[0, 5:] = tok[2, 3:] = 0
    seg = random.integers(0, 2, (3, 7))
    word = np.where(random.random((3, 7)) < 0.6, random.integers(0, 23, (3, 7)),
                    -1)
    shapes = {"wte": ((23, 16), 0.5, 0), "wpe": ((7, 16), 0.5, 0),
              "wse": ((2, 16), 0.5, 0), "bv": ((23,), 0.3, 0),
              "linear.w": ((16, 16), 0.3, 0), "linear.b": ((16,), 0.3, 0)}
    norms = ["norm[0].", "norm[1]."]
    for i in range(2):
        b = f"block[{i}]."
        norms += [b + "norm[0].", b + "norm[1]."]
        for w in "qkv":
            shapes[b + "attention.w" + w] = ((16, 2, 8), 0.3, 0)
            if w != "k":
                shapes[b + "attention.b" + w] = ((2, 8), 0.3, 0)
        shapes |= {b + "attention.wo": ((2, 8, 16), 0.3, 0),
                   b + "attention.bo": ((16,), 0.3, 0),
                   b + "linear[0].w": ((16, 24), 0.3, 0),
                   b + "linear[0].b": ((24,), 0.3, 0),
                   b + "linear[1].w": ((24, 16), 0.3, 0),
                   b + "linear[1].b": ((16,), 0.3, 0)}
    for b in norms:
        shapes |= {b + "g": ((16,), 0.2, 1), b + "b": ((16,), 0.2, 0)}
    record("bert_small", bert, shapes, np.hstack([tok, seg, word]), 0.05)

    shapes = {"wte": ((19, 16), 0.7, 0), "out": ((16, 19), 0.3, 0),
              "rms.g": ((16,), 0.2, 1)}
    for i in range(2):
        b = f"block[{i}]."
        shapes |= {b + "attn.wq": ((16, 2, 2, 4), 0.3, 0),
                   b + "attn.wk": ((16, 2, 4), 0.3, 0),
                   b + "attn.wv": ((16, 2, 4), 0.3, 0),
                   b + "attn.wo": ((2, 2, 4, 16), 0.3, 0),
                   b + "experts.wg": ((16, 4), 0.5, 0),
                   b + "experts.w1": ((4, 16, 12), 0.3, 0),
                   b + "experts.w3": ((4, 16, 12), 0.3, 0),
                   b + "experts.w2": ((4, 12, 16), 0.3, 0),
                   b + "rms[0].g": ((16,), 0.2, 1),
                   b + "rms[1].g": ((16,), 0.2, 1)}
    record("mixtral_small", mixtral, shapes, random.integers(0, 19, (2, 12)),
           0.02)

    shapes = {"emb": ((19, 12), 1.0, 0), "buckets[0].w": ((8, 2), 0.5, 0),
              "buckets[1].w": ((8, 2), 0.5, 0), "rms[0].g": ((12,), 0.2, 1),
              "rms[1].g": ((12,), 0.2, 1)}
    for i in range(2):
        for b, calls, n in ((f"encoder[{i}].", ["attend."], 2),
                            (f"decoder[{i}].", ["attend[0].", "attend[1]."],
                             3)):
            for call in calls:
                for w in "qkv":
                    shapes[b + call + "w" + w] = ((12, 2, 4), 0.3, 0)
                shapes[b + call + "wo"] = ((2, 4, 12), 0.3, 0)
            for k in range(n):
                shapes[b + f"rms[{k}].g"] = ((12,), 0.2, 1)
            if i == 0:
                shapes |= {b + "feed.mlp.w1": ((12, 16), 0.3, 0),
                           b + "feed.mlp.w2": ((16, 12), 0.3, 0)}
            else:
                shapes |= {b + "feed.experts.wg": ((12, 3), 0.5, 0),
                           b + "feed.experts.w1": ((3, 12, 16), 0.3, 0),
                           b + "feed.experts.w2": ((3, 16, 12), 0.3, 0)}
    record("switch_small", switch, shapes, random.integers(0, 19, (2, 16)),
           0.02)


if __name__ == "__main__":
    main()

"""The transformers.

Blocks that torch.nn.TransformerEncoderLayer can be are it.  Experts are computed
for every token and what was not chosen or had no slot is left out, so nothing
of how dnnc does it is repeated here.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from recorder import model


def tokens(seed, rows, columns, below):
    return np.random.default_rng(seed).integers(0, below, (rows, columns))


def never(n):
    """True where a position must not look."""
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def cross(logits, y, **named):
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), **named)


# ---- torch.nn.TransformerEncoderLayer ----

def encoder_layer(net, x, b, heads, mask=None, attn="attn.", mlp=None,
                  activation=F.gelu, eps=1e-5, norm_first=True):
    """The block of path `b`; `mlp`: paths of the two products and their biases
    below it."""
    w1, b1, w2, b2 = (net.params.get(b + k) for k in mlp)
    has_bias = b1 is not None
    c = x.shape[-1]
    layer = nn.TransformerEncoderLayer(
        c, heads, w1.shape[1], 0.0, activation, eps, True, norm_first,
        bias=has_bias)
    qkv = [net[b + attn + "w" + w].flatten(1).T for w in "qkv"]
    values = {"self_attn.in_proj_weight": torch.cat(qkv),
              "self_attn.out_proj.weight": net[b + attn + "wo"].flatten(0, 1).T,
              "linear1.weight": w1.T, "linear2.weight": w2.T,
              "norm1.weight": net[b + "norm[0].g"],
              "norm2.weight": net[b + "norm[1].g"]}
    if has_bias:
        values |= {"self_attn.in_proj_bias": torch.cat(
                       [net[b + attn + "b" + w].flatten() for w in "qkv"]),
                   "self_attn.out_proj.bias": net[b + attn + "bo"],
                   "linear1.bias": b1, "linear2.bias": b2,
                   "norm1.bias": net[b + "norm[0].b"],
                   "norm2.bias": net[b + "norm[1].b"]}
    return functional_call(layer, values, (x,), {"src_mask": mask})


DIRECT = ("mlp.w1", "mlp.b1", "mlp.w2", "mlp.b2")
LINEAR = ("mlp.linear[0].w", "mlp.linear[0].b", "mlp.linear[1].w",
          "mlp.linear[1].b")


def norm(x, p, b, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], p[b + "g"], p.get(b + "b"), eps)


def linear(x, p, b):
    return F.linear(x, p[b + "w"].T, p[b + "b"])


def gpt(p, rows, t, activation):
    x = p.stream(F.embedding(rows[:, :t], p["wte"]) + p["wpe"])
    for i in range(2):
        x = encoder_layer(p, x, f"block[{i}].", 2, never(t), mlp=DIRECT,
                          activation=activation)
        p.act(f"block[{i}].add[1]", x, "BTC")
    return cross(norm(x, p, "norm.") @ p["wte"].T, rows[:, t:])


@model("gpt2_small", tokens(51, 2, 12, 17), 0.05)
def gpt2(p, rows):
    return gpt(p, rows, 6, lambda x: F.gelu(x, approximate="tanh"))


@model("chargpt_small", tokens(52, 3, 16, 32), 0.05)
def chargpt(p, rows):
    return gpt(p, rows, 8, F.gelu)


def pretraining():
    random = np.random.default_rng(53)
    word = np.where(random.random((3, 7)) < 0.6, random.integers(0, 23, (3, 7)),
                    -1)
    return np.hstack([random.integers(0, 23, (3, 7)),
                      random.integers(0, 2, (3, 7)), word,
                      random.integers(0, 2, (3, 1))])


@model("bert_small", pretraining(), 0.02)
def bert(p, rows):
    tok, seg, word, pair = rows.split((7, 7, 7, 1), 1)
    e = "encoder."
    x = p.stream(p["wte"][tok] + p[e + "wpe"] + p[e + "wse"][seg])
    x = norm(x, p, e + "norm.", 1e-12)
    for i in range(2):
        x = encoder_layer(p, x, f"{e}block[{i}].", 2, attn="attention.",
                          mlp=LINEAR, eps=1e-12, norm_first=False)
    h = norm(F.gelu(linear(x, p, "words.linear.")), p, "words.norm.", 1e-12)
    words = h @ p["wte"].T + p["words.b"]
    pairs = linear(torch.tanh(linear(x[:, 0], p, "pooler.linear.")), p,
                   "linear.")
    return cross(words, word, ignore_index=-1) + F.cross_entropy(pairs,
                                                                 pair[:, 0])


def digits():
    random = np.random.default_rng(54)
    return np.hstack([random.integers(0, 9, (4, 64)),
                      random.integers(0, 5, (4, 1))])


@model("vit_digits_small", digits(), 0.02)
def vit_digits(p, rows):
    x = rows[:, :64].to(p.dtype).reshape(4, 1, 8, 8) / 4 - 1
    x = F.unfold(x, 2, stride=2).transpose(1, 2)
    x = p.stream(linear(x, p, "linear[0].") + p["pos"])
    for i in range(2):
        x = encoder_layer(p, x, f"block[{i}].", 2, attn="attention.",
                          mlp=LINEAR)
    x = norm(x, p, "norm.").mean(1)
    return F.cross_entropy(linear(x, p, "linear[1]."), rows[:, 64],
                           label_smoothing=0.1)


# ---- rotary positions, grouped queries ----

def rms(x, g, eps=1e-5):
    return F.rms_norm(x, x.shape[-1:], g, eps)


def rotary(x):
    t, d = x.shape[1], x.shape[-1]
    angle = (torch.arange(t, dtype=x.dtype)[:, None] *
             100.0 ** (-2 * torch.arange(d // 2, dtype=x.dtype) / d))
    angle = angle.reshape(t, *[1] * (x.ndim - 3), d // 2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(),
                      b * angle.cos() + a * angle.sin()], -1)


def grouped(p, b, x):
    """Attention: every G queries of a group share its key and value."""
    g = x.shape[0], x.shape[1]
    wq, wk, wv = (p[b + "attn.w" + w] for w in "qkv")
    q = rotary(torch.einsum("btc,cghd->btghd", x, wq))
    k = rotary(torch.einsum("btc,cgd->btgd", x, wk))
    v = torch.einsum("btc,cgd->btgd", x, wv)
    q, k, v = (a.flatten(2, -2).transpose(1, 2) for a in (q, k, v))
    o = F.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype),
                                       is_causal=True, enable_gqa=True)
    o = o.transpose(1, 2).reshape(*g, *wq.shape[1:])
    return torch.einsum("btghd,ghdc->btc", o, p[b + "attn.wo"])


@model("llama_small", tokens(55, 2, 12, 19), 0.05)
def llama(p, rows):
    x = p.stream(p["wte"][rows[:, :6]])
    for i in range(2):
        b = f"block[{i}]."
        x = p.act(b + "x", x + grouped(p, b, rms(x, p[b + "rms[0].g"])), "BTC")
        n = rms(x, p[b + "rms[1].g"])
        up = F.silu(n @ p[b + "mlp.w1"]) * (n @ p[b + "mlp.w3"])
        x = x + up @ p[b + "mlp.w2"]
    return cross(rms(x, p["rms[1].g"]) @ p["out"], rows[:, 6:])


# ---- experts ----

def experts(x, p, b, top, capacity, expert):
    """Returns the result and the balance loss (Switch, equation 4)."""
    prob = torch.softmax((x @ p[b + "wg"]).to(p.dtype), -1)
    n, tokens, n_experts = prob.shape
    sorted_, order = torch.sort(prob, -1, descending=True)
    for j in range(top):
        p.margins.append((sorted_[..., j] - sorted_[..., j + 1]).min().item())
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
    p.drops.append(kept.sum() < kept.numel())
    y = expert(x)  # [b, t, e, c]
    y = torch.gather(y, 2, order[..., :top, None].expand(-1, -1, -1,
                                                         y.shape[-1]))
    share = F.one_hot(order[..., 0], n_experts).to(x.dtype).mean(1)
    balance = n_experts * (share * prob.mean(1)).sum(-1).mean()
    return ((weight * kept)[..., None] * y).sum(2), balance


@model("mixtral_small", tokens(56, 2, 12, 19), 0.005,
       scales={"wg": (1, 0)}, margin=0.005)
def mixtral(p, rows):
    x, extra = p.stream(p["wte"][rows[:, :6]]), 0
    for i in range(2):
        b = f"moe_block[{i}]."
        m = b + "experts."
        x = p.act(b + "x", x + grouped(p, b, rms(x, p[b + "rms[0].g"])), "BTC")

        def expert(x):
            up = [torch.einsum("btc,ecf->btef", x, p[m + w])
                  for w in ("w1", "w3")]
            return torch.einsum("btef,efc->btec", F.silu(up[0]) * up[1],
                                p[m + "w2"])

        out, balance = experts(rms(x, p[b + "rms[1].g"]), p, m, 2, 1.25, expert)
        x, extra = x + out, extra + 0.01 * balance
    return cross(rms(x, p["rms.g"]) @ p["out"], rows[:, 6:]) + extra


@model("charmoe_small", tokens(57, 3, 16, 32), 0.02,
       scales={"wg": (1, 0)})
def charmoe(p, rows):
    x, extra = p.stream(p["wte"][rows[:, :8]] + p["wpe"]), 0
    for i in range(2):
        b = f"moe_block[{i}]."
        m = b + "experts."
        n = norm(x, p, b + "norm[0].")
        q, k, v = (torch.einsum("btc,chd->bhtd", n, p[b + "attn.w" + w])
                   for w in "qkv")
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + torch.einsum("bhtd,hdc->btc", o, p[b + "attn.wo"])

        def expert(x):
            up = F.gelu(torch.einsum("btc,ecf->btef", x, p[m + "w1"]))
            return torch.einsum("btef,efc->btec", up, p[m + "w2"])

        out, balance = experts(norm(x, p, b + "norm[1]."), p, m, 1, 1.5, expert)
        x, extra = x + out, extra + 0.01 * balance
    return cross(norm(x, p, "norm.") @ p["wte"].T, rows[:, 8:]) + extra


# ---- T5 and Switch ----

def bias(w, n_query, n_key, causal):
    """T5's relative_position_bucket with 32 buckets up to distance 128."""
    n = torch.arange(n_query)[:, None] - torch.arange(n_key)
    buckets, place = 32, 0
    if not causal:
        buckets = 16
        place = (n < 0).long() * buckets
        n = n.abs()
    n = n.clamp(min=0)
    exact = buckets // 2
    far = exact + (torch.log(n.clamp(min=1).double() / exact)
                   / math.log(128 / exact) * (buckets - exact)).long()
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

    out, balance = experts(x, p, m, 1, 1.25, expert)
    return out, 0.01 * balance


def rms6(x, g):
    return rms(x, g, 1e-6)


@model("switch_small", tokens(58, 2, 42, 19), 0.01,
       scales={"emb": (1.5, 0), "wg": (1, 0)})
def switch(p, rows):
    src, tgt = rows[:, :24], rows[:, 24:]
    m, extra = p.stream(p["emb"][src]), 0
    near = bias(p["buckets[0].w"], 24, 24, False)
    for i in range(2):
        b = f"encoder[{i}]."
        n = rms6(m, p[b + "rms[0].g"])
        m = p.act(b + "x", m + attend(p, b + "attend.", n, n, near), "BTC")
        out, loss = feed(p, b + "feed.", rms6(m, p[b + "rms[1].g"]), i == 1)
        m, extra = m + out, extra + loss
    m = rms6(m, p["rms[0].g"])
    x = p.stream(p["emb"][F.pad(tgt, (1, 0))[:, :-1]])
    past = bias(p["buckets[1].w"], 18, 18, True)
    for i in range(2):
        b = f"decoder[{i}]."
        n = rms6(x, p[b + "rms[0].g"])
        x = p.act(b + "x[0]",
                  x + attend(p, b + "attend[0].", n, n, past, True), "BTC")
        x = p.act(b + "x[1]", x + attend(p, b + "attend[1].",
                                         rms6(x, p[b + "rms[1].g"]), m, 0),
                  "BTC")
        out, loss = feed(p, b + "feed.", rms6(x, p[b + "rms[2].g"]), i == 1)
        x, extra = x + out, extra + loss
    logits = rms6(x, p["rms[1].g"]) @ p["emb"].T / p["emb"].shape[1] ** 0.5
    return cross(logits, tgt) + extra

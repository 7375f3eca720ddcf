"""Operators in company: windows, forms of attention, losses, as no model of
models/ has them."""
import numpy as np
import torch
import torch.nn.functional as F

from images import conv2d
from language import cross, grouped, linear, norm, rms
from recorder import model


def eighths(seed, n, inputs, labels, classes=None):
    """Rows of multiples of 1/8 and of what is wanted: classes, or more of them.
    """
    random = np.random.default_rng(seed)
    x = random.integers(-16, 17, (n, inputs)) / 8
    y = (random.integers(0, classes, (n, labels)) if classes
         else random.integers(-16, 17, (n, labels)) / 8)
    return np.hstack([x, y])


@model("cnn_small", eighths(71, 4, 162, 1, 5), 0.1)
def cnn(p, rows):
    x = rows[:, :162].reshape(4, 2, 9, 9).to(p.dtype)
    x = F.max_pool2d(F.relu(p.layer("conv2d", conv2d, x)), 2)
    x = p.layer("conv2d", conv2d, x, 1, 0)
    x = F.gelu(x, approximate="tanh").flatten(1)
    return F.cross_entropy(x @ p["w"] + p["b"], rows[:, 162].long())


@model("windows_small", eighths(72, 3, 1020, 4), 0.1)
def windows(p, rows):
    x = rows[:, :1020].reshape(3, 4, 17, 15).to(p.dtype)
    x = F.conv2d(x, p["w0"], p["b0"], stride=(2, 1), padding=(1, 2))
    x = F.max_pool2d(F.silu(x), 3, 2, 1)
    x = F.conv2d(x, p["w1"].flatten(0, 1), padding=(1, 2), dilation=(1, 2),
                 groups=2)
    x = F.avg_pool2d(F.softplus(x), 3, 2, 1, count_include_pad=False)
    x = F.conv_transpose2d(x, p["w2"], stride=2, padding=(0, 1))
    x = F.avg_pool2d(torch.tanh(x), 2, 2, 1)
    x = F.adaptive_avg_pool2d(x, (3, 2))
    y = torch.einsum("ncyx,cyxk->nk", x, p["w"])
    return F.mse_loss(y.to(p.dtype), rows[:, 1020:].to(p.dtype))


@model("enlarge_small", eighths(73, 2, 60, 2340), 0.1)
def enlarge(p, rows):
    x = rows[:, :60].reshape(2, 4, 5, 3).to(p.dtype)
    x = F.conv_transpose2d(x, p["w0"].flatten(0, 1), stride=(1, 2), groups=2)
    x = F.interpolate(torch.tanh(x), scale_factor=(2, 3), mode="bilinear")
    x = F.pad(F.pad(x, (0, 0, 0, 1)), (2, 1, 0, 0), value=0.5)
    x = F.conv2d(x, p["w1"], stride=(1, 2), padding=(1, 3))
    x = F.interpolate(x, scale_factor=2, mode="nearest")
    return F.mse_loss(x.to(p.dtype), rows[:, 60:].view(x.shape).to(p.dtype))


def words(seed, *columns):
    """Rows of groups of integers: (how many, least, below)."""
    random = np.random.default_rng(seed)
    return np.hstack([random.integers(low, high, (3, n))
                      for n, low, high in columns])


@model("grouped_small", words(74, (6, 0, 19), (6, 0, 5))[:2], 0.1)
def ignoring(p, rows):
    """Rows and columns that the loss ignores, and pointwise operators."""
    x = p.stream(p["wte"][rows[:, :6]])
    for i in range(2):
        b = f"block[{i}]."
        x = x + grouped(p, b, rms(x, p[b + "rms[0].g"]))
        n = rms(x, p[b + "rms[1].g"])
        x = x + (F.silu(n @ p[b + "mlp.w1"]) * (n @ p[b + "mlp.w3"])
                 ) @ p[b + "mlp.w2"]
    x, gate = rms(x, p["rms.g"]), p["gate"]
    before = F.pad(x, (0, 0, 1, 0))[:, :-1]
    quarter = torch.tensor(0.25, dtype=x.dtype)
    m = (torch.maximum(x, before) -
         torch.minimum(x, quarter) / (1 + torch.exp(gate)))
    logits = (m + torch.log(1 + x.abs()) * torch.erf(gate)) @ p["out"]
    return cross(logits, rows[:, 6:], ignore_index=0, label_smoothing=0.1)


def padded():
    rows = words(75, (7, 1, 23), (7, 0, 2), (7, -1, 23))
    rows[0, 5:7] = rows[2, 3:7] = 0
    return rows


@model("padding_small", padded(), 0.05)
def padding(p, rows):
    """Attention past padding, behind a norm with a small epsilon."""
    tok, seg, y = rows[:, :7], rows[:, 7:14], rows[:, 14:]
    x = p.stream(p["wte"][tok] + p["wpe"] + p["wse"][seg])
    x = norm(x, p, "norm[0].", 1e-12)
    for i in range(2):
        b = f"block[{i}]."
        a = b + "attention."
        q, k, v = (torch.einsum("btc,chd->bhtd", x, p[a + "w" + w])
                   for w in "qkv")
        q, v = (z + p[a + "b" + w][:, None].to(z.dtype)
                for z, w in ((q, "q"), (v, "v")))
        o = F.scaled_dot_product_attention(
            q, k, v, attn_mask=(tok != 0)[:, None, None, :])
        o = torch.einsum("bhtd,hdc->btc", o, p[a + "wo"]) + p[a + "bo"]
        x = norm(p.act(b + "add[0]", x + o, "BTC"), p, b + "norm[0].", 1e-12)
        h = linear(F.gelu(linear(x, p, b + "linear[0].")), p, b + "linear[1].")
        x = norm(x + h, p, b + "norm[1].", 1e-12)
    x = norm(F.gelu(linear(x, p, "linear.")), p, "norm[1].", 1e-12)
    return cross(x @ p["wte"].T + p["bv"], y, ignore_index=-1)


def hard(x):
    """The hard sigmoid; PyTorch's has 1 / 6 in f32 only."""
    return ((x + 3) / 6).clamp(0, 1)


@model("spreads_small", eighths(78, 4, 30, 3), 0.02)
def spreads(p, rows):
    """Activations, angles, variances and norms."""
    x = rows[:, :30].reshape(4, 6, 5).to(p.dtype)
    h = torch.einsum("nct,cd->ntd", x, p["w"]) + p["b"]
    a = F.elu(h, 0.7) + torch.where(h > 0, h, p["slope"] * h)
    a = a + F.leaky_relu(-h)
    c = F.mish(a) * hard(h * 2) + h * 3 * hard(h * 3) + F.elu(a * 0.5)
    d = (F.logsigmoid(c) + torch.log1p(c.abs()) + torch.expm1(torch.tanh(h)) +
         torch.exp2(-a.abs()))
    d = (d + torch.log2(1.5 + torch.sigmoid(a)) +
         torch.tan(torch.tanh(c)) * 0.5)
    e = torch.atan2(d, torch.tanh(c)) + torch.ceil(h) - torch.trunc(a)
    v = (torch.var(e, 1) + torch.std(d, 1, correction=0) +
         torch.linalg.vector_norm(c, dim=1) * 0.2)
    least = p["table"][torch.linalg.vector_norm(h, dim=1).argmin(-1)]
    y = v @ p["out"] + least @ p["side"] + torch.std(h)
    return F.mse_loss(y, rows[:, 30:].to(p.dtype))

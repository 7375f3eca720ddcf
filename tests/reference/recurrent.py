"""The recurrent models, of torch.nn.LSTM, LSTMCell and GRU.

Gates stand in PyTorch's order: input, forget, cell, output; reset, update,
candidate.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from recorder import model


def tokens(seed, rows, columns, below):
    return np.random.default_rng(seed).integers(0, below, (rows, columns))


def cross(logits, y, **named):
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), **named)


def linear(p, b, x):
    return F.linear(x, p[b + "w"].T, p[b + "b"])


def recurrent(kind, p, b, x, names=("wx", "wh", "b", "b2"), state=None):
    """The layer of path `b`: result and last state.  [I, G, O] and [G, O] are
    the rows of one matrix and one vector; a name of None is a bias of zeros."""
    wx, wh = (p[b + w] for w in names[:2])
    rows = wh.flatten(1).shape[1]
    module = kind(wx.shape[0], wh.shape[0], batch_first=True)
    values = dict(zip(
        ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"),
        [wx.flatten(1).T, wh.flatten(1).T] +
        [p[b + w].flatten() if w else wx.new_zeros(rows) for w in names[2:]]))
    return functional_call(module, values, (x, state))


def lstm(p, b, x, names=("wx", "wh", "b", "b2")):
    return recurrent(nn.LSTM, p, b, x, names)[0]


@model("lstm_small", tokens(61, 3, 14, 11), 0.1)
def lstm_model(p, rows):
    x = p["emb"][rows[:, :7]]
    ahead = lstm(p, "lstm[0].", x)
    back = lstm(p, "lstm[1].", x.flip(1)).flip(1)
    both = p.act("both", torch.cat([ahead, back], -1), "BTC")
    z = p.act("z", lstm(p, "lstm[2].", both) @ p["w"] + p["b"], "BTV")
    return cross(z, rows[:, 7:])


@model("gru_small", tokens(62, 3, 14, 11), 0.1)
def gru_model(p, rows):
    x = p["emb"][rows[:, :7]]
    for i in range(2):
        x = recurrent(nn.GRU, p, f"gru[{i}].", x, ("wx", "wh", "bx", "bh"))[0]
    z = p.act("z", x @ p["emb"].T, "BTV")
    return cross(z, rows[:, 7:])


@model("charlstm_small", tokens(63, 3, 14, 11), 0.1)
def charlstm(p, rows):
    x = lstm(p, "lstm.", p["emb"][rows[:, :7]])
    return cross(p.act("linear", linear(p, "linear.", x), "BTV"), rows[:, 7:])


@model("awdlm_small", tokens(64, 3, 10, 11), 0.1)
def awdlm(p, rows):
    x = p["emb"][rows[:, :5]]
    for i in range(3):
        b = f"recur[{i}]."
        before = [p.states[b + s] for s in ("h0", "c0")]
        x, after = recurrent(nn.LSTM, p, b, x, ("wx", "wh", "bx", "bh"),
                             [s[None].clone() for s in before])
        for s, new in zip(before, after):
            s.copy_(new[0].detach())
    logits = x @ p["emb"].T + p["b"]
    return cross(p.act("add", logits, "BTV"), rows[:, 5:])


def frames():
    """Twenty-four numbers, and a sentence with its end filled up."""
    random = np.random.default_rng(65)
    words = random.integers(1, 9, (3, 6))
    words[1, 4:] = 0
    return np.hstack([random.integers(0, 10, (3, 24)), words])


@model("s2vt_small", frames(), 0.1)
def s2vt(p, rows):
    frame = rows[:, :24].reshape(3, 4, 6).to(p.dtype) / 4 - 1
    words, one = rows[:, 24:], ("wx", "wh", "b", None)
    x = F.pad(linear(p, "linear[0].", frame), (0, 0, 0, 5))
    w = F.pad(p["emb"][words[:, :5]], (0, 0, 4, 0))
    y = lstm(p, "lstm[0].", x, one)
    y = lstm(p, "lstm[1].", torch.cat([y, w], -1), one)[:, 4:]
    return cross(linear(p, "linear[1].", y), words[:, 1:], ignore_index=0)


def look(p, q, m, real):
    """Normalised additive attention (Bahdanau et al., with the scale of Salimans
    and Kingma)."""
    e = torch.tanh((q @ p["look.wq"])[:, :, None] +
                   (m @ p["look.wk"])[:, None] + p["look.b"])
    v = F.normalize(p["look.v"], dim=0) * p["look.g"]
    s = (e @ v).masked_fill(~real[:, None], -torch.inf)
    return torch.softmax(s, -1).to(m.dtype) @ m


def sentences():
    random = np.random.default_rng(66)
    src, tgt = random.integers(1, 13, (3, 6)), random.integers(1, 13, (3, 6))
    src[0, 4:] = src[2, 3:] = tgt[0, 5:] = tgt[1, 3:] = 0
    return np.hstack([src, tgt])


@model("gnmt_small", sentences(), 0.1, scales={"look.g": (0.2, 1.0)})
def gnmt(p, rows):
    src, tgt = rows[:, :6], rows[:, 6:]
    x = p["emb"][src]
    m = torch.cat([lstm(p, "lstm[0].", x),
                   lstm(p, "lstm[1].", x.flip(1)).flip(1)], -1)
    m = lstm(p, "lstm[2].", m)
    for i in range(2):
        m = m + lstm(p, f"lstm[3][{i}].", m)
    x = lstm(p, "lstm[4].", p["emb"][tgt[:, :5]])
    c = p.act("look.dot[3]", look(p, x, m, src != 0), "BTC")
    x = lstm(p, "lstm[5].", torch.cat([x, c], -1))
    for i in range(2):
        x = x + lstm(p, f"lstm[6][{i}].", torch.cat([x, c], -1))
    return cross(linear(p, "linear.", x), tgt[:, 1:], ignore_index=0,
                 label_smoothing=0.1)


def cell(p, w, b, x, state):
    """[x, h] have one matrix."""
    c = state[0].shape[-1]
    rows = p[w].flatten(1).T
    module = nn.LSTMCell(c, c)
    values = {"weight_ih": rows[:, :c], "weight_hh": rows[:, c:],
              "bias_ih": p[b].flatten(),
              "bias_hh": torch.zeros_like(p[b]).flatten()}
    return functional_call(module, values, (x, state))


@model("reverse_small", tokens(67, 3, 5, 8), 0.1)
def reverse(p, rows):
    wanted = rows.flip(1) + 1
    m = p["read"][rows + 1]
    for i in range(2):
        m = lstm(p, f"lstm[{i}].", m)
    tok, zero = F.pad(wanted, (1, 0)), m.new_zeros(3, 6)
    one, two, z = (zero, zero), (zero, zero), []
    for t in range(5):
        one = cell(p, "w1", "b1", p["write"][tok[:, t]] + p["place"][t], one)
        two = cell(p, "w2", "b2", one[0], two)
        q = two[0].to(m.dtype)
        a = torch.softmax(torch.einsum("bc,bsc->bs", q, m) / 6 ** 0.5, -1)
        seen = torch.einsum("bs,bsc->bc", a.to(m.dtype), m)
        z.append(torch.cat([q, seen], -1) @ p["wo"])
    return cross(torch.stack(z, 1), wanted)

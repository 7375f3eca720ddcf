"""Records what PyTorch's own LSTM and GRU compute for the models of this folder.

    python3 record_recurrent.py     (needs torch and numpy; results are kept)

The records are those of record_transformers.py.  Gates stand in PyTorch's
order: input, forget, cell, output; reset, update, candidate.
"""
import numpy as np
import torch
import torch.nn.functional as F

from record_transformers import keep, record


def weights(p, b, names):
    """[I, G, O] and [G, O] as the rows of one matrix and one vector."""
    wx, wh = (p[b + w].flatten(1).T for w in names[:2])
    return [wx, wh] + [p[b + w].flatten() for w in names[2:]]


def lstm(x, p, b):
    h = x.new_zeros(1, x.shape[0], p[b + "wh"].shape[0])
    w = weights(p, b, ("wx", "wh", "b", "b2"))
    return torch.lstm(x, (h, h), w, True, 1, 0.0, True, False, True)[0]


def gru(x, p, b):
    h = x.new_zeros(1, x.shape[0], p[b + "wh"].shape[0])
    w = weights(p, b, ("wx", "wh", "bx", "bh"))
    return torch.gru(x, h, w, True, 1, 0.0, True, False, True)[0]


def lstm_model(p, data):
    tok, y = data[:, :7], data[:, 7:]
    x = p["emb"][tok]
    ahead = lstm(x, p, "lstm[0].")
    back = lstm(x.flip(1), p, "lstm[1].").flip(1)
    both = torch.cat([ahead, back], -1)
    keep("both", both.transpose(0, 1))  # as it is stored: positions first
    z = lstm(both, p, "lstm[2].") @ p["w"] + p["b"]
    keep("z", z.transpose(0, 1))
    return F.cross_entropy(z.flatten(0, 1), y.flatten())


def gru_model(p, data):
    tok, y = data[:, :7], data[:, 7:]
    x = p["emb"][tok]
    for i in range(2):
        x = gru(x, p, f"gru[{i}].")
    z = x @ p["emb"].T
    keep("z", z.transpose(0, 1))
    return F.cross_entropy(z.flatten(0, 1), y.flatten())


def main():
    random = np.random.default_rng(21)
    rows = random.integers(0, 11, (3, 14))
    shapes = {"emb": ((11, 6), 0.7, 0), "w": ((8, 11), 0.5, 0),
              "b": ((11,), 0.3, 0)}
    for i, n in enumerate((6, 6, 16)):
        b = f"lstm[{i}]."
        shapes |= {b + "wx": ((n, 4, 8), 0.4, 0), b + "wh": ((8, 4, 8), 0.4, 0),
                   b + "b": ((4, 8), 0.3, 0), b + "b2": ((4, 8), 0.3, 0)}
    record("lstm_small", lstm_model, shapes, rows, 0.1)

    rows = random.integers(0, 11, (3, 14))
    shapes = {"emb": ((11, 6), 0.7, 0)}
    for i in range(2):
        b = f"gru[{i}]."
        shapes |= {b + "wx": ((6, 3, 6), 0.5, 0), b + "wh": ((6, 3, 6), 0.5, 0),
                   b + "bx": ((3, 6), 0.3, 0), b + "bh": ((3, 6), 0.3, 0)}
    record("gru_small", gru_model, shapes, rows, 0.1)


if __name__ == "__main__":
    main()

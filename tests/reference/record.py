"""Records what PyTorch computes for the models of this folder.

    python3 record.py          (needs torch and numpy; run once, results kept)

For each MODEL it writes MODEL.csv, the data, and MODEL.safetensors with, in
f64: param/PATH, grad/PATH (names and dim orders of the .dnn file), loss, and
f32_error/PATH: the L2 error of PyTorch's own f32 gradient relative to f64;
ten/PATH and f32_error_ten/PATH: the same of the parameters after ten steps.
"""
import json
import struct

import numpy as np
import torch
import torch.nn.functional as F


def write_safetensors(path, tensors):
    header, blobs, offset = {}, [], 0
    for name in sorted(tensors):
        narrow = getattr(tensors[name], "dtype", None) == np.float32
        data = np.ascontiguousarray(tensors[name], "<f4" if narrow else "<f8")
        end = offset + data.nbytes
        header[name] = {"dtype": "F32" if narrow else "F64",
                        "shape": list(np.shape(tensors[name])),
                        "data_offsets": [offset, end]}
        blobs.append(data.tobytes())
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def layernorm(x, g):
    return F.layer_norm(x, (x.shape[-1],), eps=1e-5) * g


def chargpt(p, x, y):
    h = p["wte"][x] + p["wpe"]
    t = x.shape[1]
    causal = torch.tril(torch.ones(t, t, dtype=torch.bool))
    for i in range(2):
        q_ = f"block[{i}]."
        n = layernorm(h, p[q_ + "norm[0].g"])
        q, k, v = (torch.einsum("btc,chd->bthd", n, p[q_ + "attn.w" + w])
                   for w in "qkv")
        s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
        a = torch.softmax(s.masked_fill(~causal, -torch.inf), -1)
        o = torch.einsum("bhts,bshd->bthd", a, v)
        h = h + torch.einsum("bthd,hdc->btc", o, p[q_ + "attn.wo"])
        n = layernorm(h, p[q_ + "norm[1].g"])
        h = h + F.gelu(n @ p[q_ + "mlp.w1"]) @ p[q_ + "mlp.w2"]
    logits = layernorm(h, p["norm.g"]) @ p["wte"].T
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def cnn(p, x, y):
    h = torch.relu(F.conv2d(x, p["conv2d[0].w"], p["conv2d[0].b"], padding=1))
    h = F.max_pool2d(h, 2)
    h = F.conv2d(h, p["conv2d[1].w"], p["conv2d[1].b"])
    h = F.gelu(h, approximate="tanh").flatten(1)
    return F.cross_entropy(h @ p["w"] + p["b"], y)


def windows(p, x, y):
    h = F.conv2d(x, p["w0"], p["b0"], stride=(2, 1), padding=(1, 2))
    h = F.max_pool2d(F.silu(h), 3, 2, 1)
    h = F.conv2d(h, p["w1"].flatten(0, 1), padding=(1, 2), dilation=(1, 2),
                 groups=2)
    h = F.avg_pool2d(F.softplus(h), 3, 2, 1, count_include_pad=False)
    h = F.conv_transpose2d(h, p["w2"], stride=2, padding=(0, 1))
    h = F.avg_pool2d(torch.tanh(h), 2, 2, 1)
    h = F.adaptive_avg_pool2d(h, (3, 2))
    return F.mse_loss(torch.einsum("ncyx,cyxk->nk", h, p["w"]), y.to(h.dtype))


def enlarge(p, x, y):
    w0 = p["w0"].flatten(0, 1)
    h = F.conv_transpose2d(x, w0, stride=(1, 2), groups=2)
    h = F.interpolate(torch.tanh(h), scale_factor=(2, 3), mode="bilinear")
    h = F.pad(F.pad(h, (0, 0, 0, 1)), (2, 1, 0, 0), value=0.5)
    h = F.conv2d(h, p["w1"], stride=(1, 2), padding=(1, 3))
    h = F.interpolate(h, scale_factor=2, mode="nearest")
    return F.mse_loss(h, y.view(h.shape).to(h.dtype))


def rms(x, g):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * g


def rotary(x):
    t, d = x.shape[1], x.shape[-1]
    angle = (torch.arange(t, dtype=x.dtype)[:, None] *
             100.0 ** (-2 * torch.arange(d // 2, dtype=x.dtype) / d))
    angle = angle.reshape(t, *[1] * (x.ndim - 3), d // 2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(),
                      b * angle.cos() + a * angle.sin()], -1)


def llama(p, x, y):
    h = p["wte"][x]
    t = x.shape[1]
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
        h = h + torch.einsum("btghd,ghdc->btc", o, p[b + "attn.wo"])
        n = rms(h, p[b + "rms[1].g"])
        h = h + (F.silu(n @ p[b + "mlp.w1"]) * (n @ p[b + "mlp.w3"])
                 ) @ p[b + "mlp.w2"]
    h, gate = rms(h, p["rms.g"]), p["gate"]
    before = F.pad(h, (0, 0, 1, 0))[:, :-1]
    quarter = torch.tensor(0.25, dtype=h.dtype)
    m = (torch.maximum(h, before) -
         torch.minimum(h, quarter) / (1 + torch.exp(gate)))
    logits = (m + torch.log(1 + h.abs()) * torch.erf(gate)) @ p["out"]
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=0,
                           label_smoothing=0.1)


def ten_steps(model, values, x, y, dtype):
    """Parameters after ten steps of sgd(0.1, momentum 0.9) on the same data."""
    p = {path: torch.tensor(v, dtype=dtype, requires_grad=True)
         for path, v in values.items()}
    optimizer = torch.optim.SGD(p.values(), lr=0.1, momentum=0.9)
    data = torch.tensor(x)
    data = data.to(dtype) if data.is_floating_point() else data
    for _ in range(10):
        optimizer.zero_grad()
        model(p, data, torch.tensor(y)).backward()
        optimizer.step()
    return {path: t.detach().double().numpy() for path, t in p.items()}


def record(name, model, shapes, x, y, rows):
    random = np.random.default_rng(7)
    values = {path: random.normal(0, scale, shape) + shift
              for path, (shape, scale, shift) in shapes.items()}
    # Parameters and data are exact in f32, so that both precisions start equal.
    values = {path: v.astype("f4").astype("f8") for path, v in values.items()}
    grads = {}
    for dtype in (torch.float64, torch.float32):
        p = {path: torch.tensor(v, dtype=dtype, requires_grad=True)
             for path, v in values.items()}
        data = torch.tensor(x)
        loss = model(p, data.to(dtype) if data.is_floating_point() else data,
                     torch.tensor(y))
        loss.backward()
        grads[dtype] = {path: t.grad.double().numpy() for path, t in p.items()}
        if dtype == torch.float64:
            exact_loss = loss.item()
    out = {"loss": np.array(exact_loss)}
    ten, ten32 = (ten_steps(model, values, x, y, dtype)
                  for dtype in (torch.float64, torch.float32))
    for path, exact in grads[torch.float64].items():
        error = np.linalg.norm(grads[torch.float32][path] - exact)
        out["param/" + path] = values[path]
        out["grad/" + path] = exact
        out["f32_error/" + path] = np.array(error / np.linalg.norm(exact))
        error = np.linalg.norm(ten32[path] - ten[path])
        out["ten/" + path] = ten[path]
        out["f32_error_ten/" + path] = np.array(
            error / np.linalg.norm(ten[path]))
    write_safetensors(name + ".safetensors", out)
    with open(name + ".csv", "w") as file:
        for row in rows:
            file.write(",".join(repr(v) for v in row) + "\n")


def main():
    random = np.random.default_rng(3)
    x = random.integers(0, 32, (3, 8))
    y = random.integers(0, 32, (3, 8))
    shapes = {"wte": ((32, 16), 0.5, 0), "wpe": ((8, 16), 0.5, 0),
              "norm.g": ((16,), 0.2, 1)}
    for i in range(2):
        b = f"block[{i}]."
        for w in "qkv":
            shapes[b + "attn.w" + w] = ((16, 2, 8), 0.3, 0)
        shapes[b + "attn.wo"] = ((2, 8, 16), 0.3, 0)
        shapes[b + "mlp.w1"] = ((16, 64), 0.3, 0)
        shapes[b + "mlp.w2"] = ((64, 16), 0.3, 0)
        for k in range(2):
            shapes[b + f"norm[{k}].g"] = ((16,), 0.2, 1)
    record("chargpt_small", chargpt, shapes, x, y,
           [[int(v) for v in np.concatenate([a, b])] for a, b in zip(x, y)])

    image = random.normal(0, 1, (4, 2, 9, 9)).astype("f4").astype("f8")
    label = random.integers(0, 5, 4)
    shapes = {"conv2d[0].w": ((6, 2, 3, 3), 0.3, 0),
              "conv2d[0].b": ((6,), 0.3, 0),
              "conv2d[1].w": ((8, 6, 3, 3), 0.2, 0),
              "conv2d[1].b": ((8,), 0.3, 0),
              "w": ((32, 5), 0.3, 0), "b": ((5,), 0.3, 0)}
    record("cnn_small", cnn, shapes, image, label,
           [[float(np.float32(v)) for v in a.flatten()] + [int(b)]
            for a, b in zip(image, label)])

    # A generator of their own, so that the records above stay as they are.
    random = np.random.default_rng(5)
    image = random.normal(0, 1, (3, 4, 17, 15)).astype("f4").astype("f8")
    target = random.normal(0, 1, (3, 4)).astype("f4").astype("f8")
    shapes = {"w0": ((6, 4, 3, 3), 0.3, 0), "b0": ((6,), 0.3, 0),
              "w1": ((2, 3, 3, 3, 3), 0.3, 0), "w2": ((6, 4, 2, 3), 0.3, 0),
              "w": ((4, 3, 2, 4), 0.5, 0)}
    record("windows_small", windows, shapes, image, target,
           [[float(np.float32(v)) for v in np.concatenate([a.flatten(), b])]
            for a, b in zip(image, target)])

    x = random.integers(0, 19, (2, 6))
    y = random.integers(0, 5, (2, 6))
    assert 0 < np.count_nonzero(y == 0) < y.size
    shapes = {"wte": ((19, 16), 0.7, 0), "out": ((16, 19), 0.3, 0),
              "gate": ((16,), 0.5, 0), "rms.g": ((16,), 0.2, 1)}
    for i in range(2):
        b = f"block[{i}]."
        shapes |= {b + "attn.wq": ((16, 2, 3, 4), 0.3, 0),
                   b + "attn.wk": ((16, 2, 4), 0.3, 0),
                   b + "attn.wv": ((16, 2, 4), 0.3, 0),
                   b + "attn.wo": ((2, 3, 4, 16), 0.3, 0),
                   b + "mlp.w1": ((16, 24), 0.3, 0),
                   b + "mlp.w3": ((16, 24), 0.3, 0),
                   b + "mlp.w2": ((24, 16), 0.3, 0),
                   b + "rms[0].g": ((16,), 0.2, 1),
                   b + "rms[1].g": ((16,), 0.2, 1)}
    record("llama_small", llama, shapes, x, y,
           [[int(v) for v in np.concatenate([a, b])] for a, b in zip(x, y)])

    random = np.random.default_rng(6)
    image = random.integers(-8, 9, (2, 4, 5, 3)) / 8
    target = random.integers(-8, 9, (2, 2340)) / 8
    record("enlarge_small", enlarge,
           {"w0": ((2, 2, 3, 3, 2), 0.3, 0), "w1": ((3, 6, 3, 3), 0.3, 0)},
           image, target,
           [[float(v) for v in np.concatenate([a.flatten(), b])]
            for a, b in zip(image, target)])


if __name__ == "__main__":
    main()

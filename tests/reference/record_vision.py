"""Records what PyTorch computes for the image models of this folder.

    python3 record_vision.py DNNC      (needs torch and numpy; run once)

Each MODEL.dnn is a model of ../../models at reduced size.  The compiler DNNC
is asked for nothing but the names and shapes of its parameters and states, and
the dim order of the values compared.  Written beside: MODEL.csv, the data, and
MODEL.safetensors with

    param/ state/       before the first step, exact in f32
    value/              values of the first forward pass
    loss, grad/         of the first step
    ten/                parameters and states after ten steps of sgd with
                        momentum
    f32_error/, f32_error_ten/   how far PyTorch's own f32 is from its f64, L2,
                        relative: of grad/ and ten/; the worst of three orders
                        of summation that it has
    floor               what an error of grad/ is relative to where the norm is
                        less than a millionth of it: some gradients are zero
                        but for rounding, like that of a key's bias, which
                        shifts a whole row of scores
"""
import re
import subprocess
import sys

import numpy as np
import torch
import torch.nn.functional as F

from record import write_safetensors

STEPS, MOMENTUM = 10, 0.9


class Net:
    """Parameters by path, as the .dnn files name them: a call of a layer adds
    its name, numbered where the body calls it more than once."""

    def __init__(self, params, states, acts):
        self.params, self.states, self.acts = params, states, acts
        self.prefix, self.calls = "", {}

    def __getitem__(self, name):
        return self.params[self.prefix + name]

    def layer(self, name, function, *args, index="", **named):
        key = self.prefix + name + index
        count = self.calls[key] = self.calls.get(key, -1) + 1
        path = f"{self.prefix}{name}[{count}]{index}."
        if not any(p.startswith(path) for p in self.params):
            path = self.prefix + name + index + "."
        outer, self.prefix = self.prefix, path
        result = function(self, *args, **named)
        self.prefix = outer
        return result

    def act(self, name, value, dims="NCYX"):
        """Remembers a value under the path that it has in the graph."""
        self.acts[self.prefix + name] = (value.detach(), dims)
        return value


def linear(net, x):
    return x @ net["w"] + net["b"]


def conv2d(net, x, stride=1, pad=None):
    pad = net["w"].shape[-1] // 2 if pad is None else pad
    return F.conv2d(x, net["w"], net["b"], stride, pad)


def conv_bn(net, x, stride=1, pad=None, eps=1e-5, group=0):
    w = net["w"]
    pad = (w.shape[2] // 2, w.shape[3] // 2) if pad is None else pad
    x = F.conv2d(x, w, None, stride, pad)
    mean, var = (net.states[net.prefix + s] for s in ("mean", "var"))
    if group == 0:
        return F.batch_norm(x, mean, var, net["g"], net["b"], True, 0.1, eps)
    with torch.no_grad():
        mean.mul_(0.9).add_(0.1 * x.mean((0, 2, 3)))
        var.mul_(0.9).add_(0.1 * x.var((0, 2, 3), unbiased=True))
    return torch.cat([F.batch_norm(g, None, None, net["g"], net["b"], True,
                                   0.1, eps) for g in x.split(group)])


def alexnet(net, x):
    x = F.relu(net.layer("conv2d", conv2d, x, 4, 2))
    x = net.act("x[1]", F.max_pool2d(x, 3, 2))
    x = F.max_pool2d(F.relu(net.layer("conv2d", conv2d, x)), 3, 2)
    for i in range(3):
        x = net.act(f"x[{4 + i}]", F.relu(net.layer("conv2d", conv2d, x)))
    x = F.adaptive_avg_pool2d(F.max_pool2d(x, 3, 2), 6).flatten(1)
    for i in range(2):
        x = net.act(f"x[{9 + i}]", F.relu(net.layer("linear", linear, x)), "NF")
    return net.act("linear[2]", net.layer("linear", linear, x), "NK")


def vgg(net, x):
    for s, n in enumerate([1, 1, 2, 1, 1]):
        for i in range(n):
            x = net.layer("unit", vgg_unit, x, index=f"[{s}][{i}]")
        x = net.act(f"x[1][{s}]", F.max_pool2d(x, 2))
    x = F.adaptive_avg_pool2d(x, 7).flatten(1)
    for i in range(2):
        x = F.relu(net.layer("linear", linear, x))
    return net.act("linear[2]", net.layer("linear", linear, x), "NK")


def vgg_unit(net, x):
    return F.relu(net.layer("conv2d", conv2d, x))


def resnet(net, x):
    x = F.relu(net.layer("conv_bn", conv_bn, x, 2, group=4))
    x = net.act("x[1]", F.max_pool2d(x, 3, 2, 1))
    for s, n in enumerate([1, 2, 1, 1]):
        for i in range(n):
            x = net.layer("bottleneck", bottleneck, x,
                          2 if i == 0 and s > 0 else 1, index=f"[{s}][{i}]")
    return net.act("linear", net.layer("linear", linear, x.mean((2, 3))), "NK")


def bottleneck(net, x, stride):
    y = F.relu(net.layer("conv_bn", conv_bn, x, group=4))
    y = net.act("y[1]", F.relu(net.layer("conv_bn", conv_bn, y, stride,
                                         group=4)))
    y = net.layer("conv_bn", conv_bn, y, group=4)
    if x.shape != y.shape:
        x = net.layer("conv_bn", conv_bn, x, stride, group=4)
    return F.relu(x + y)


def unit(net, x, stride=1, pad=None):
    return F.relu(net.layer("conv_bn", conv_bn, x, stride, pad, 1e-3))


def units(net, x, n):
    for _ in range(n):
        x = net.layer("unit", unit, x)
    return x


def smooth(net, x):
    return net.layer("unit", unit, F.avg_pool2d(x, 3, 1, 1))


def mixed_a(net, x):
    return torch.cat([units(net, x, 1), units(net, x, 2), units(net, x, 3),
                      net.layer("smooth", smooth, x)], 1)


def reduce_a(net, x):
    a = net.layer("unit", unit, x, 2, 0)
    b = net.layer("unit", unit, units(net, x, 2), 2, 0)
    return torch.cat([a, b, F.max_pool2d(x, 3, 2)], 1)


def mixed_b(net, x):
    return torch.cat([units(net, x, 1), units(net, x, 3), units(net, x, 5),
                      net.layer("smooth", smooth, x)], 1)


def reduce_b(net, x):
    a = net.layer("unit", unit, units(net, x, 1), 2, 0)
    b = net.layer("unit", unit, units(net, x, 3), 2, 0)
    return torch.cat([a, b, F.max_pool2d(x, 3, 2)], 1)


def mixed_c(net, x):
    a, b, c = units(net, x, 1), units(net, x, 1), units(net, x, 2)
    forks = [net.layer("unit", unit, y) for y in (b, b, c, c)]
    return torch.cat([a, *forks, net.layer("smooth", smooth, x)], 1)


def side_head(net, x):
    x = units(net, F.avg_pool2d(x, 2, 3), 1)
    x = net.layer("unit", unit, x, 1, 0)
    return net.layer("linear", linear, x.mean((2, 3)))


def inception(net, x):
    x = net.layer("unit", unit, x, 2, 0)
    x = net.layer("unit", unit, x, 1, 0)
    x = F.max_pool2d(net.layer("unit", unit, x), 3, 2)
    x = net.layer("unit", unit, x)
    x = F.max_pool2d(net.layer("unit", unit, x, 1, 0), 3, 2)
    net.act("x[4]", x)
    for i in range(3):
        x = net.layer("mixed_a", mixed_a, x, index=f"[{i}]")
    x = net.act("reduce_a.concat", net.layer("reduce_a", reduce_a, x))
    for i in range(4):
        x = net.layer("mixed_b", mixed_b, x, index=f"[{i}]")
    side = net.layer("side_head", side_head, x)
    x = net.act("reduce_b.concat", net.layer("reduce_b", reduce_b, x))
    for i in range(2):
        x = net.layer("mixed_c", mixed_c, x, index=f"[{i}]")
    x = net.layer("linear", linear, x.mean((2, 3)))
    return net.act("linear", x, "NK"), net.act("side_head.linear", side, "NK")


def unet(net, x):
    x = net.layer("level", level, x, 2)
    return net.act("conv2d.add", net.layer("conv2d", conv2d, x))


def unet_unit(net, x):
    return F.relu(net.layer("conv2d", conv2d, x, 1, 0))


def twice(net, x):
    return net.layer("unit", unet_unit, net.layer("unit", unet_unit, x))


def up(net, x):
    return F.conv_transpose2d(x, net["w"], net["b"], 2)


def level(net, x, below):
    x = net.layer("twice", twice, x)
    if below == 0:
        return x
    y = net.layer("level", level, F.max_pool2d(x, 2), below - 1)
    y = net.act("up.add", net.layer("up", up, y))
    n = (x.shape[2] - y.shape[2]) // 2
    x = net.act("concat", torch.cat([x[:, :, n:-n, n:-n], y], 1))
    return net.layer("twice", twice, x)


def norm(net, x):
    return F.layer_norm(x, x.shape[-1:], net["g"], net["b"], 1e-6)


def attention(net, x):
    q, k, v = (torch.einsum("btc,chd->bhtd", x, net["w" + w]) +
               net["b" + w][:, None] for w in "qkv")
    p = torch.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5, -1)
    net.act("p", p, "BHTS")
    return torch.einsum("bhtd,hdc->btc", p @ v, net["wo"]) + net["bo"]


def mlp(net, x):
    return net.layer("linear", linear, F.gelu(net.layer("linear", linear, x)))


def block(net, x):
    x = x + net.layer("attention", attention, net.layer("norm", norm, x))
    return x + net.layer("mlp", mlp, net.layer("norm", norm, x))


def vit(net, x):
    x = F.conv2d(x, net["w"], net["b"], 8).flatten(2).transpose(1, 2)
    first = net["first"].expand(x.shape[0], 1, -1)
    x = torch.cat([first, x], 1) + net["pos"]
    for i in range(2):
        x = net.layer("block", block, net.act("x[2]", x, "BTC") if i == 0
                      else x, index=f"[{i}]")
    x = net.layer("norm", norm, x)[:, 0]
    return net.act("linear", net.layer("linear", linear, x), "BK")


MODELS = {  # function, loss of its result, inputs, times larger, labels,
           # classes, rate
    "alexnet_small": (alexnet, F.cross_entropy, (4, 3, 21, 21), 3, (4,), 5,
                      0.005),
    "vgg_small": (vgg, F.cross_entropy, (4, 3, 8, 8), 4, (4,), 5, 0.005),
    "resnet_small": (resnet, lambda x, y: F.cross_entropy(
        x, y, label_smoothing=0.1), (8, 3, 12, 12), 4, (8,), 5, 0.005),
    "inception_small": (inception, lambda x, y: sum(
        share * F.cross_entropy(h, y, label_smoothing=0.1)
        for share, h in zip((1, 0.4), x)), (6, 3, 27, 27), 4, (6,), 5, 1e-4),
    "unet_small": (unet, F.cross_entropy, (2, 1, 11, 11), 4, (2, 4, 4), 3,
                   0.005),
    "vit_small": (vit, lambda x, y: F.cross_entropy(
        x, y, label_smoothing=0.1), (4, 3, 12, 12), 2, (4,), 5, 0.005),
}


def read_graph(dnnc, name):
    """Shapes of parameters and states, and dim orders of values, by path."""
    text = subprocess.run([dnnc, "ir", name + ".dnn", "-O0",
                           "--stop-after=canonicalize"], check=True,
                          capture_output=True, text=True).stdout
    params, states, orders = {}, {}, {}
    for line in text.splitlines():
        found = re.search(r' : \w+\[([^]]*)\].* "([^"]+)"$', line)
        if not found:
            continue
        dims = [d.split(":") for d in found[1].split(", ") if d]
        shape = tuple(int(d[1]) for d in dims)
        if "] param " in line:
            params[found[2]] = shape
        elif "] state " in line:
            states[found[2]] = shape
        else:
            orders[found[2]] = "".join(d[0] for d in dims)
    return params, states, orders


def initial(path, shape, random):
    name = path.split(".")[-1]
    if name in ("g", "var"):
        return 1 + 0.2 * abs(random.normal(0, 1, shape))
    if "conv_bn" in path and name == "b":       # most of a relu's inputs pass:
        return 0.7 + random.normal(0, 0.2, shape)   # else ten steps are chaos
    if name == "wo":
        fan = np.prod(shape[:-1])
    elif name.startswith("w") and len(shape) == 4:
        fan = np.prod(shape[1:]) / 2            # a relu follows
    else:
        fan = shape[0] if name.startswith("w") else 25
    return random.normal(0, 1 / np.sqrt(fan), shape)


def train(model, loss_of, values, states, x, times, y, rate, dtype,
          layout=torch.contiguous_format):
    p = {k: torch.tensor(v, dtype=dtype, requires_grad=True)
         for k, v in values.items()}
    s = {k: torch.tensor(v, dtype=dtype) for k, v in states.items()}
    optimizer = torch.optim.SGD(p.values(), rate, MOMENTUM)
    losses, first, grads = [], {}, {}
    x = F.interpolate(torch.tensor(x, dtype=dtype), scale_factor=times,
                      mode="bilinear", align_corners=False)
    x = x.contiguous(memory_format=layout)
    for step in range(STEPS):
        acts = {}
        loss = loss_of(model(Net(p, s, acts), x), torch.tensor(y))
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            first = acts
            grads = {k: t.grad.double().numpy().copy() for k, t in p.items()}
        optimizer.step()
    last = {k: t.detach().double().numpy() for k, t in {**p, **s}.items()}
    return losses, first, grads, last


def off(got, exact, floor=0.0):
    size = np.linalg.norm(exact)
    size = floor if size < 1e-6 * floor else size
    return np.float32(np.linalg.norm(got - exact) / size)


def record(dnnc, name, seed):
    model, loss_of, x_shape, times, y_shape, classes, rate = MODELS[name]
    params, states, orders = read_graph(dnnc, name)
    random = np.random.default_rng(seed)
    values = {k: initial(k, v, random).astype("f4") for k, v in params.items()}
    state = {k: initial(k, v, random).astype("f4") for k, v in states.items()}
    digits = random.integers(0, 10, x_shape)
    y = random.integers(0, classes, y_shape)
    given = model, loss_of, values, state, digits / 4 - 1, times, y, rate
    losses, acts, grads, last = train(*given, torch.float64)
    narrow = [train(*given, torch.float32),
              train(*given, torch.float32, torch.channels_last)]
    with torch.backends.mkldnn.flags(enabled=False):
        narrow.append(train(*given, torch.float32))
    floor = 1e-2 * np.sqrt(sum(np.sum(g * g) for g in grads.values()))
    out = {"loss": np.array(losses[0]), "floor": np.array(floor)}
    for path, value in values.items():
        out["param/" + path] = value
        out["grad/" + path] = grads[path]
        out["f32_error/" + path] = max(
            off(run[2][path], grads[path], floor) for run in narrow)
        out["ten/" + path] = last[path]
    for path, value in state.items():
        out["state/" + path] = value
        out["ten/" + path] = last[path]
    for path in last:
        out["f32_error_ten/" + path] = max(off(run[3][path], last[path])
                                          for run in narrow)
    for path, (value, dims) in acts.items():
        order = [dims.index(d) for d in orders[path]]
        out["value/" + path] = value.permute(order).numpy()
    write_safetensors(name + ".safetensors", out)
    with open(name + ".csv", "w") as file:
        for a, b in zip(digits, y):
            row = np.concatenate([a.flatten(), np.atleast_1d(b).flatten()])
            file.write(",".join(str(v) for v in row) + "\n")
    worst = max((float(out["f32_error/" + k]), k) for k in values)
    print(name, "loss", losses[0], "to", losses[-1], "; worst f32 gradient",
          worst, "; after ten steps", max(float(v) for k, v in out.items()
                                          if k.startswith("f32_error_ten/")))


def main():
    torch.set_num_threads(1)
    for i, name in enumerate(MODELS):
        record(sys.argv[1], name, 11 + i)


main()

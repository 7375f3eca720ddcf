"""The image models.

Those whose layers torchvision has are built of them; the others, and those with
statistics over groups of samples, are written out.
"""
import functools

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import DenseNet, GoogLeNet, MobileNetV2
from torchvision.models.googlenet import BasicConv2d, Inception, InceptionAux
from torchvision.models.resnet import BasicBlock
from torchvision.models.squeezenet import Fire

from recorder import Adopted, model


def pictures(seed, n, shape, labels, classes):
    """Rows of digits, one picture each, and what is wanted."""
    random = np.random.default_rng(seed)
    digits = random.integers(0, 10, (n, *shape)).reshape(n, -1)
    return np.hstack([digits, random.integers(0, classes, (n, labels))])


def alike(seed, kinds, copies, shape, classes):
    """Pictures of a few kinds, each one class: those of a kind differ by one in
    a digit.  What a deep net makes of roundings differs in each, the gradient
    adds up."""
    random = np.random.default_rng(seed)
    kind = pictures(seed, kinds, shape, 1, classes)
    kind[:, -1] = np.arange(kinds)
    rows = np.tile(kind, (copies, 1))
    rows[:, :-1] += random.integers(-1, 2, (len(rows), kind.shape[1] - 1))
    return rows.clip(0, 9)


# Normalised values that a relu cuts where they are 1.7 deviations below the
# mean: few stand where a rounding decides, so that bf16 says something about
# gradients through many of them.
CALM = {".g": (0.12, 0.6), ".b": (0.25, 1.0)}


def smoothed(x, y):
    return F.cross_entropy(x, y, label_smoothing=0.1)


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
        wide = x.to(mean.dtype)
        mean.mul_(0.9).add_(0.1 * wide.mean((0, 2, 3)))
        var.mul_(0.9).add_(0.1 * wide.var((0, 2, 3), unbiased=True))
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
    x = net.stream(torch.cat([first, x], 1) + net["pos"])
    for i in range(2):
        x = net.layer("block", block, net.act("x[2]", x, "BTC") if i == 0
                      else x, index=f"[{i}]")
    x = net.layer("norm", norm, x)[:, 0]
    return net.act("linear", net.layer("linear", linear, x), "BK")


@model("alexnet_small", pictures(11, 4, (3, 21, 21), 1, 5), 0.005)
def alexnet_loss(net, rows):
    x = net.images(rows[:, :1323], (-1, 3, 21, 21), 3)
    return F.cross_entropy(alexnet(net, x), rows[:, 1323])


@model("vgg_small", pictures(12, 4, (3, 8, 8), 1, 5), 0.005)
def vgg_loss(net, rows):
    x = net.images(rows[:, :192], (-1, 3, 8, 8), 4)
    return F.cross_entropy(vgg(net, x), rows[:, 192])


@model("resnet_small", pictures(13, 8, (3, 12, 12), 1, 5), 0.005, CALM)
def resnet_loss(net, rows):
    x = net.images(rows[:, :432], (-1, 3, 12, 12), 4)
    return smoothed(resnet(net, x), rows[:, 432])


@model("inception_small", alike(14, 2, 4, (3, 27, 27), 5), 1e-4, CALM)
def inception_loss(net, rows):
    out = inception(net, net.images(rows[:, :2187], (-1, 3, 27, 27), 4))
    return sum(share * smoothed(h, rows[:, 2187])
               for share, h in zip((1, 0.4), out))


@model("unet_small", pictures(15, 2, (1, 11, 11), 16, 3), 0.005)
def unet_loss(net, rows):
    x = net.images(rows[:, :121], (-1, 1, 11, 11), 4)
    return F.cross_entropy(unet(net, x), rows[:, 121:].reshape(-1, 4, 4))


@model("vit_small", pictures(16, 4, (3, 12, 12), 1, 5), 0.005)
def vit_loss(net, rows):
    x = net.images(rows[:, :432], (-1, 3, 12, 12), 2)
    return smoothed(vit(net, x), rows[:, 432])


# ---- built of torchvision's modules ----

def adopted(name, build, seed, n, shape, times, rate, loss, watch={}, kinds=0,
            **named):
    """`build`: a function that makes the module."""
    x = torch.zeros(2, shape[0], *(times * s for s in shape[1:]))
    adoptee, cells = Adopted(build(), x, watch=watch), int(np.prod(shape))
    rows = (alike(seed, kinds, n // kinds, shape, 5) if kinds else
            pictures(seed, n, shape, 1, 5))

    @model(name, rows, rate, **named)
    def function(net, rows):
        x = net.images(rows[:, :cells], (-1, *shape), times)
        return loss(adoptee(net, x), rows[:, cells])


class ThinConv(BasicConv2d):
    """A convolution of GoogLeNet with an eighth of the channels."""

    def __init__(self, inputs, outputs, **named):
        super().__init__(inputs if inputs == 3 else inputs // 8, outputs // 8,
                         **named)


def thin_googlenet():
    blocks = [ThinConv, functools.partial(Inception, conv_block=ThinConv),
              functools.partial(InceptionAux, conv_block=ThinConv)]
    net = GoogLeNet(5, init_weights=False, dropout=0, dropout_aux=0,
                    blocks=blocks)
    net.fc = nn.Linear(128, 5)
    for aux in (net.aux1, net.aux2):
        aux.fc1, aux.fc2 = nn.Linear(256, 6), nn.Linear(6, 5)
    return net


def three_heads(out, y):
    return F.cross_entropy(out.logits, y) + 0.3 * (
        F.cross_entropy(out.aux_logits1, y) +
        F.cross_entropy(out.aux_logits2, y))


adopted("googlenet_small", thin_googlenet, 31, 8, (3, 16, 16), 4, 0.0002,
        three_heads, {"inception3b": "mixed[1].concat",
                      "inception5a": "mixed[7].concat",
                      "aux1": "side_head[0].linear[1]"}, kinds=2, scales=CALM)


def thin_squeezenet():
    def fire(inputs, few, out):
        return Fire(inputs // 8, few // 8, out // 8, out // 8)

    def pool():
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    return nn.Sequential(
        nn.Conv2d(3, 12, 7, 2), nn.ReLU(), pool(), fire(96, 16, 64),
        fire(128, 16, 64), fire(128, 32, 128), pool(), fire(256, 32, 128),
        fire(256, 48, 192), fire(384, 48, 192), fire(384, 64, 256), pool(),
        fire(512, 64, 256), nn.Conv2d(64, 5, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten())


adopted("squeezenet_small", thin_squeezenet, 32, 4, (3, 12, 12), 4, 0.01,
        F.cross_entropy, {"5": "fire[2].concat", "12": "fire[7].concat"})

adopted("mobilenet_small",
        lambda: MobileNetV2(5, inverted_residual_setting=[
            [1, 8, 1, 1], [6, 8, 2, 2], [6, 16, 2, 2]], dropout=0),
        33, 4, (3, 8, 8), 4, 0.002, F.cross_entropy,
        {"features.3": "inverted[1][1].y[3]"}, scales=CALM)

adopted("densenet_small",
        lambda: DenseNet(4, (2, 2, 1, 1), 8, num_classes=5), 34, 6,
        (3, 16, 16), 4, 0.002, F.cross_entropy,
        {"features.transition1": "half[1].avgpool", "classifier": "linear"},
        scales={".g": (0.15, 0.8), ".b": (0.25, 0.8)})

adopted("lenet_small", lambda: nn.Sequential(
            nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 8), nn.ReLU(),
            nn.Linear(8, 5)),
        35, 4, (1, 14, 14), 2, 0.005, F.cross_entropy, {"3": "x[1]"})


def no_stem(inputs):
    return [nn.Conv2d(inputs, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4),
            nn.ReLU()]


def head(inputs):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 5)]


def projection(inputs, outputs, stride):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                         nn.BatchNorm2d(outputs))


adopted("resnet_mnist_small", lambda: nn.Sequential(
            *no_stem(1), BasicBlock(4, 4), BasicBlock(4, 8, 2,
                                                      projection(4, 8, 2)),
            BasicBlock(8, 16, 2, projection(8, 16, 2)), *head(16)),
        36, 4, (1, 14, 14), 2, 0.005, smoothed, {"4": "basic[1].relu[1]"})


class Shortcut(nn.Module):
    """Option A of He et al.: every second pixel, the new channels zero."""

    def forward(self, x):
        n = x.shape[1] // 2
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, n, n))


adopted("resnet_cifar_small", lambda: nn.Sequential(
            *no_stem(3), BasicBlock(4, 4), BasicBlock(4, 4),
            BasicBlock(4, 8, 2, Shortcut()), BasicBlock(8, 8),
            BasicBlock(8, 16, 2, Shortcut()), BasicBlock(16, 16), *head(16)),
        37, 4, (3, 8, 8), 4, 0.005, F.cross_entropy)

adopted_mlp = Adopted(nn.Sequential(nn.Linear(36, 8), nn.ReLU(),
                                    nn.Linear(8, 6), nn.ReLU(),
                                    nn.Linear(6, 4)), torch.zeros(2, 36))


@model("mlp_small", pictures(38, 5, (36,), 1, 4), 0.05)
def mlp_loss(net, rows):
    x = rows[:, :36].to(net.dtype) / 4 - 1
    return F.cross_entropy(adopted_mlp(net, x), rows[:, 36])


# ---- AmoebaNet-D, after the figures of Real et al. and GPipe's cells ----

def operation(net, x, *args, number=None):
    """A unit of AmoebaNet: relu, convolution, batch normalisation."""
    return net.layer("unit", amoeba_unit, x, *args, number=number)


def amoeba_unit(net, x, stride=1):
    return net.layer("conv_bn", conv_bn, F.relu(x), stride)


def narrow(net, x, square, stride=1):
    """1 x 1 to a quarter of the channels, the window (3 x 3, or 1 x 7 and then
    7 x 1), 1 x 1 back."""
    x = operation(net, x)
    if square:
        x = operation(net, x, stride)
    else:
        x = operation(net, x, (1, stride), number=2)
        x = operation(net, x, (stride, 1), number=3)
    return operation(net, x, number=4)


def halve(net, x):
    x = F.relu(x)
    odd = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
    return torch.cat([net.layer("conv_bn", conv_bn, part, 2)
                      for part in (x, odd)], 1)


def inputs(net, x, before, out):
    if before.shape[2] != x.shape[2]:
        before = net.layer("halve", halve, before)
    elif before.shape[1] != out:
        before = operation(net, before)
    return operation(net, x, number=1), before


def flat(x):
    return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


def normal_cell(net, x, before, out):
    a, b = net.layer("inputs", inputs, x, before, out)
    c = operation(net, b) + F.max_pool2d(b, 3, 1, 1)
    d = b + net.layer("narrow", narrow, a, False)
    e = operation(net, a) + net.layer("narrow", narrow, a, False)
    f = F.max_pool2d(c, 3, 1, 1) + c
    g = flat(b) + operation(net, f)
    return net.act("concat", torch.cat([a, d, e, g], 1), "NCYX")


def reduction_cell(net, x, before, out):
    a, b = net.layer("inputs", inputs, x, before, out)
    c = F.max_pool2d(a, 2) + F.max_pool2d(a, 3, 2, 1)
    d = c + net.layer("narrow", narrow, b, True, 2)
    e = net.layer("narrow", narrow, c, False) + F.max_pool2d(c, 3, 1, 1)
    f = d + F.max_pool2d(b, 2)
    g = flat(c) + operation(net, d)
    return net.act("concat", torch.cat([e, f, g], 1), "NCYX")


@model("amoebanet_small", alike(42, 2, 4, (3, 16, 16), 5), 3e-4, CALM)
def amoebanet(net, rows):
    x = net.images(rows[:, :768], (-1, 3, 16, 16), 4)
    x = before = operation(net, x, 2)
    for s, out in enumerate([8, 16, 16, 32, 64]):
        if s != 2:
            x, before = net.layer("reduction", reduction_cell, x, before, out,
                                  index=f"[{s}]"), x
        if s >= 2:
            x, before = net.layer("normal", normal_cell, x, before, out,
                                  index=f"[{s}][0]"), x
    x = net.layer("linear", linear, x.mean((2, 3)))
    return smoothed(x, rows[:, 768])


# ---- the U-Net for shapes ----

def padded_unit(net, x):
    return F.relu(net.layer("conv_bn", conv_bn, x))


def padded_twice(net, x):
    return net.layer("unit", padded_unit, net.layer("unit", padded_unit, x))


def padded_level(net, x, below):
    x = net.layer("twice", padded_twice, x)
    if below == 0:
        return x
    y = net.layer("level", padded_level, F.max_pool2d(x, 2), below - 1)
    x = torch.cat([x, net.layer("up", up, y)], 1)
    return net.layer("twice", padded_twice, net.act("concat", x, "NCYX"))


@model("unet_shapes_small", pictures(40, 4, (69,), 0, 1), 0.005)
def unet_shapes(net, rows):
    z = (rows[:, :5].to(net.dtype) / 4 - 1).tanh()[:, :, None, None]
    noise = net.images(rows[:, 5:], (-1, 1, 8, 8), 4)[:, 0]
    y, x = torch.arange(32)[:, None], torch.arange(32)
    dy, dx = y - 15.5 - 5 * z[:, 0], x - 15.5 - 5 * z[:, 1]
    disc = dy * dy + dx * dx < (7 + 2 * z[:, 2]) ** 2
    far = torch.maximum((y - 15.5 - 8 * z[:, 3]).abs(),
                        (x - 15.5 - 8 * z[:, 4]).abs())
    picture = (disc | (far < 4)).to(net.dtype) + 0.3 * noise
    out = net.layer("level", padded_level, picture[:, None], 2)
    out = net.layer("conv2d", conv2d, out)
    return F.cross_entropy(out, disc.long())

# versions.py -- a reference for stages that keep versions of their parameters: trains the model of
# versions.dnn in integers and keeps the history of weights itself.  It knows the numbers of layers and
# replicas of each stage, of minibatches, and where the pipeline is drained.
#
#   versions.py data FOLDER [BATCH]                writes x.npy and y.npy
#   versions.py check CHECKPOINT LOG LAYERS MINIBATCHES [--drains N,N]
#     [--evaluations N,N] [--shift N] [--replicas N,N] [--vertical] [--two] [--batch N]
#
# LAYERS: of each stage, as "2,1,1".  --shift N: stage 0 reads versions that are N newer.  --two: all stages
# read the version before the newest one (2bw), and each minibatch makes an update with its gradient, whichever
# replicas have its micro-batches.  Prints "equal", or the first difference and ends with 1.
import argparse
import json
import math
import random
import struct
import sys

BATCH = 4
EVALUATED = 2 * BATCH
RECORDS = 40 * BATCH + EVALUATED
SIZES = [5, 6, 6, 6, 3]
PATTERNS = [(1, 3), (3, 5), (5, 2), (7, 1)]


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def write_npy(path, rows):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (len(rows), len(rows[0]))
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    values = [v for row in rows for v in row]
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        f.write(struct.pack("<%df" % len(values), *values))


def records(batch=BATCH):
    """40 minibatches, and two to evaluate."""
    r = random.Random(7)
    return [[[r.randint(-1, 1) for _ in range(n)] for _ in range(42 * batch)] for n in (SIZES[0], SIZES[-1])]


def wrap(x):
    whole = math.floor(x)
    return whole - 4 * (whole // 4) - 2


def product(a, b):
    result = [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]
    assert all(abs(v) < 1 << 24 for row in result for v in row), "it would round"
    return result


def turned(a):
    return [list(column) for column in zip(*a)]


def weights_of(layer, w):
    """The integers that a layer multiplies by."""
    a, b = PATTERNS[layer]
    return [[wrap(f32(f32(v + a * i) + b * o)) for o, v in enumerate(row)] for i, row in enumerate(w)]


def forward(x, weights):
    inputs = []
    for i, w in enumerate(weights):
        inputs.append(x)
        x = product(x, w)
        if i + 1 < len(weights):
            x = [[wrap(v) for v in row] for row in x]
    return x, inputs


def loss_of(out, y):
    return sum(a * b for row, of in zip(out, y) for a, b in zip(row, of))


def gradients(x, y, weights):
    out, inputs = forward(x, weights)
    grads, back = [None] * len(weights), y
    for i in reversed(range(len(weights))):
        grads[i] = product(turned(inputs[i]), back)
        back = product(back, turned(weights[i]))
    return loss_of(out, y), grads


def zeros(layer):
    return [[0.0] * SIZES[layer + 1] for _ in range(SIZES[layer])]


def update(w, m, grad, rate=1, momentum=0.5):
    """Rate and momentum are powers of two: one rounding for each number."""
    new_m = [[f32(momentum * a + g) for a, g in zip(row, of)] for row, of in zip(m, grad)]
    return [[f32(a - rate * b) for a, b in zip(row, of)] for row, of in zip(w, new_m)], new_m


def mean(grads, n):
    """Of n replicas; those that are missing have 0."""
    return [[f32(sum(v) / n) for v in zip(*rows)] for rows in zip(*grads)]


def evaluate(x, y, weights, batch):
    newest = [weights_of(i, w) for i, w in enumerate(weights)]
    total = sum(
        loss_of(forward(x[at : at + batch], newest)[0], y[at : at + batch]) for at in (40 * batch, 41 * batch)
    )
    return total / 2


def train(stages, replicas, n, drains, shift, is_vertical, has_two, groups, batch):
    """Losses by minibatch, evaluations by the minibatches before them, and the last weights.  Layers of `groups` have
    another rate and momentum."""
    x, y = records(batch)
    if has_two:
        replicas = [1] * len(stages)  # that of a minibatch is the sum over their micro-batches
    layers = [s for s, count in enumerate(stages) for _ in range(count)]
    ahead = [(sum(replicas[s:]) - 1) // replicas[s] for s in range(len(stages))]
    moments = [zeros(i) for i in range(len(layers))]
    losses, evaluations = [], {}
    history = [[zeros(i)] for i in range(len(layers))]  # since the last drain, by layer and number of updates
    k, held = 0, [[] for _ in layers]  # minibatches since then, gradients that no update has
    for t in range(n):
        read = []
        for i, s in enumerate(layers):
            version = k // replicas[s] - ahead[s]
            if has_two:
                version = k - 1
            elif is_vertical:
                version = (k // replicas[0] - ahead[0]) * (replicas[0] // replicas[s])
            version += shift if s == 0 else 0
            read.append(weights_of(i, history[i][min(max(version, 0), len(history[i]) - 1)]))
        rows = slice(t * batch, (t + 1) * batch)
        loss, grads = gradients(x[rows], y[rows], read)
        losses.append(loss)
        k += 1
        is_drained = t + 1 in drains or t + 1 == n
        for i, s in enumerate(layers):
            held[i].append(grads[i])
            if k % replicas[s] and not is_drained:
                continue
            made, moments[i] = update(history[i][-1], moments[i], mean(held[i], replicas[s]), *groups.get(i, ()))
            history[i].append(made)
            held[i] = []
        if is_drained:
            history = [[versions[-1]] for versions in history]
            evaluations[t + 1] = evaluate(x, y, [versions[-1] for versions in history], batch)
            k = 0
    return losses, evaluations, [versions[-1] for versions in history], moments


# ---- what dnnc made ----


def read_tensors(folder):
    newest = open(folder + "/latest").read().strip()
    index = json.load(open("%s/%s/model.safetensors.index.json" % (folder, newest)))
    tensors = {}
    for name in set(index["weight_map"].values()):
        data = open("%s/%s/%s" % (folder, newest, name), "rb").read()
        (length,) = struct.unpack("<Q", data[:8])
        for path, of in json.loads(data[8 : 8 + length]).items():
            if path == "__metadata__" or of["dtype"] != "F32":
                continue
            begin, end = of["data_offsets"]
            raw = data[8 + length + begin : 8 + length + end]
            tensors[path] = list(struct.unpack("<%df" % (len(raw) // 4), raw))
    return tensors


def numbers(text):
    return [int(n) for n in text.split(",")] if text else []


def groups_of(text):
    """LAYER:RATE:MOMENTUM, ... as {layer: (rate, momentum)}."""
    words = [word.split(":") for word in text.split(",")] if text else []
    return {int(layer): (float(rate), float(momentum)) for layer, rate, momentum in words}


def compare(what, is_made, wanted):
    if is_made != wanted:
        print("%s: %s, not %s" % (what, is_made, wanted))
        sys.exit(1)


def check(args):
    stages = numbers(args.layers)
    replicas = numbers(args.replicas) or [1] * len(stages)
    drains = numbers(args.drains)
    losses, evaluations, weights, moments = train(
        stages, replicas, args.minibatches, drains, args.shift, args.vertical, args.two, groups_of(args.groups),
        args.batch
    )
    lines = [json.loads(line) for line in open(args.log) if line.startswith("{")]
    for line in lines:
        if "step" in line and "loss" in line:
            compare("loss of minibatch %d" % line["step"], line["loss"], losses[line["step"] - 1])
        elif "step" in line:
            compare("evaluation after %d" % line["step"], line["validation_loss"], evaluations[line["step"]])
    seen = [line["step"] for line in lines if "step" in line and "loss" not in line]
    compare("evaluations", seen, numbers(args.evaluations) + [args.minibatches])
    compare("minibatches", sum("step" in line and "loss" in line for line in lines), args.minibatches)
    tensors = read_tensors(args.checkpoint)
    for i, (w, m) in enumerate(zip(weights, moments)):
        for kind, value in (("", w), ("m", m)):
            flat = [v for row in value for v in row]
            found = [p for p in tensors if "linear[%d].w" % i in p and (p != "linear[%d].w" % i) == (kind == "m")]
            compare("tensors of layer %d%s" % (i, kind), len(found), 1)
            compare(found[0], tensors[found[0]], flat)
    print("equal")


if __name__ == "__main__":
    if sys.argv[1] == "data":
        for path, rows in zip(("x.npy", "y.npy"), records(int(sys.argv[3]) if len(sys.argv) > 3 else BATCH)):
            write_npy(sys.argv[2] + "/" + path, rows)
        sys.exit()
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("checkpoint")
    parser.add_argument("log")
    parser.add_argument("layers")
    parser.add_argument("minibatches", type=int)
    parser.add_argument("--drains")
    parser.add_argument("--evaluations")
    parser.add_argument("--replicas")
    parser.add_argument("--groups")
    parser.add_argument("--vertical", action="store_true")
    parser.add_argument("--two", action="store_true")
    parser.add_argument("--shift", type=int, default=0)
    parser.add_argument("--batch", type=int, default=BATCH)
    check(parser.parse_args())

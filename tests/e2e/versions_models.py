# versions_models.py -- a reference for stages that keep versions of the parameters of a real model.  The
# gradient of each minibatch comes from a program of one rank without stages (dnnc build), given the mixed
# weights: of each stage the version that it has stashed.  History and update are computed here.
#
#   versions_models.py data MODEL COUNT FOLDER [M]      writes the data of so many minibatches, or of the first of M
#                                                       micro-batches of each
#   versions_models.py first CHECKPOINT                 writes parameters to begin with: init.safetensors
#   versions_models.py check MODEL PROGRAM CHECKPOINT LOG PARTS MINIBATCHES DRAINS [vertical | 2bw]
#     [older | newer | stale | fewer] [replicas=N,N,N] [shared=M]
#
# MODEL: lenet, gpt or norms.  PROGRAM: the folder of the program of one rank; its data are in the folder `one`.
# PARTS: what the parameters of each stage begin with, as "conv2d[0];conv2d[1];linear".  The rate is 2^-5 and
# the momentum 0.5, so their products are exact.  older, newer: stage 0 reads such versions.  A state, as the running
# statistics of norms, has one version: the minibatches of a group of replicas make the next one, which is the mean of
# what each alone would make of it.  stale: it is made of that which the forward pass found; fewer: replicas without
# a minibatch count.
#
# Under 2bw a minibatch makes an update with its own gradient, whichever replicas have its micro-batches.  shared=M: the
# program of one rank computes one of M micro-batches.  Each replica adds up the gradients of those that it takes in
# turn, then replicas add up theirs; M is a power of two, so the mean does not round.
#
# lenet has equal bits.  Kernels of gpt are fused in another way in a graph without stages, and states of norms are
# rounded once for all replicas: weights, momenta and states are within 1e-5 of the largest element of their tensor,
# or 1e-9, and losses within 1e-5.
import json
import os
import random
import struct
import subprocess
import sys

from versions import compare, f32, numbers, read_tensors

MODELS = {
    "lenet": {"x": ("<f4", (8, 1, 20, 20), None), "y": ("<i4", (8,), 8)},
    "gpt": {"x": ("<i4", (8, 12), 48), "y": ("<i4", (8, 12), 48)},
    "norms": {"x": ("<f4", (8, 6), None), "y": ("<i4", (8,), 3)},
}
RATE = 2.0**-5


def write_array(path, dtype, shape, values):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (dtype, tuple(shape))
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    letter = {"<f4": "f", "<i4": "i"}[dtype]
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        f.write(struct.pack("<%d%s" % (len(values), letter), *values))


def minibatches(model, count):
    """By minibatch and field: dtype, shape and values."""
    r = random.Random(11)
    result = []
    for _ in range(count):
        batch = {}
        for name, (dtype, shape, limit) in MODELS[model].items():
            size = 1
            for n in shape:
                size *= n
            batch[name] = [r.randrange(limit) if limit else r.randint(-64, 64) / 64 for _ in range(size)]
        result.append(batch)
    return result


def write_data(model, folder, batches, parts=1):
    """Of minibatches, or micro-batches of which there are so many."""
    for name, (dtype, shape, _) in MODELS[model].items():
        values = [v for batch in batches for v in batch[name]]
        write_array("%s/%s.npy" % (folder, name), dtype, (len(batches) * shape[0] // parts,) + shape[1:], values)


def microbatch(batch, number, parts):
    return {
        name: values[number * len(values) // parts : (number + 1) * len(values) // parts]
        for name, values in batch.items()
    }


def write_tensors(path, shapes, tensors):
    head, at = {}, 0
    for name, values in tensors.items():
        head[name] = {"dtype": "F32", "shape": shapes[name], "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            f.write(struct.pack("<%df" % len(values), *values))


def shapes_of(folder):
    newest = open(folder + "/latest").read().strip()
    data = open("%s/%s/model-00001-of-00001.safetensors" % (folder, newest), "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    return {k: v["shape"] for k, v in json.loads(data[8 : 8 + length]).items() if k != "__metadata__"}


def states_of(tensors):
    """Those that have no momentum, and are none."""
    moments = {n for n in tensors if any(m != n and n.endswith("/" + m) for m in tensors)}
    return [n for n in tensors if n not in moments and not any(m.endswith("/" + n) for m in moments)]


def moment_of(tensors, name):
    (found,) = [p for p in tensors if p != name and p.endswith(name)]
    return found


def gradient(model, program, batch, shapes, weights, parts=1):
    """Loss and gradients of a minibatch, the momenta after a first step, and the next states."""
    write_data(model, "one", [batch], parts)
    write_tensors("mixed.safetensors", shapes, weights)
    subprocess.run(["rm", "-rf", "one.ckpt"], check=True)
    ran = subprocess.run(
        [os.path.abspath(program) + "/run", "--load", "mixed.safetensors", "--steps", "1", "--json", "--data", "one"],
        capture_output=True, text=True, check=False,
    )
    if ran.returncode:
        sys.exit(ran.stderr)
    lines = [json.loads(line) for line in ran.stdout.split("\n") if line.startswith("{")]
    tensors = read_tensors("one.ckpt")
    states = states_of(tensors)
    grads = {name: tensors[moment_of(tensors, name)] for name in weights if name not in states}
    return lines[0]["loss"], grads, {name: tensors[name] for name in states}


def add(a, b):
    return [f32(x + y) for x, y in zip(a, b)] if a else b


def sum_of_replicas(values, replicas):
    """Of micro-batches, which replicas take in turn."""
    total = None
    for i in range(replicas):
        own = None
        for value in values[i::replicas]:
            own = add(own, value)
        total = add(total, own)
    return [f32(v / len(values)) for v in total]


def shared_gradient(model, program, batch, shapes, weights, parts, replicas_of, last):
    """Loss and gradients of a minibatch from those of its micro-batches."""
    made = [
        gradient(model, program, microbatch(batch, u, parts), shapes, weights, parts)
        for u in range(parts)
    ]
    (loss,) = sum_of_replicas([[f32(one[0])] for one in made], last)
    names = made[0][1]
    return loss, {n: sum_of_replicas([one[1][n] for one in made], replicas_of[n]) for n in names}, {}


def compare_values(model, what, made, wanted):
    limit = max(1e-5 * max(map(abs, wanted)), 1e-9) if model != "lenet" else 0
    far = [(a, b) for a, b in zip(made, wanted) if abs(a - b) > limit]
    compare(what, far[:1], [])


def check(model, program, checkpoint, log, parts, count, drains, words):
    parts, is_vertical, has_two = parts.split(";"), "vertical" in words, "2bw" in words
    replicas, shared = [1] * len(parts), 0
    for word in words:
        if word.startswith("replicas="):
            replicas = numbers(word[len("replicas=") :])
        if word.startswith("shared="):
            shared = int(word[len("shared=") :])
    shift = ("newer" in words) - ("older" in words)
    shapes = shapes_of(checkpoint)
    weights = read_tensors("first.ckpt")
    stage = {name: [s for s, part in enumerate(parts) if name.startswith(tuple(part.split(",")))] for name in weights}
    replicas_of, of_last = {name: replicas[s] for name, (s,) in stage.items()}, replicas[-1]
    if has_two:
        replicas = [1] * len(parts)  # of a group of minibatches
    first = read_tensors("one.ckpt")
    states = states_of(first)
    moments = {name: [0.0] * len(values) for name, values in weights.items() if name not in states}
    history = {name: [values] for name, values in weights.items()}  # since the last drain, by number of updates
    held, k = {name: [] for name in weights}, 0  # gradients that no update has; minibatches since the last drain
    lines = [json.loads(line) for line in open(log) if line.startswith("{")]
    losses = [line["loss"] for line in lines if "step" in line and "loss" in line]
    compare("minibatches", len(losses), count)
    for t, batch in enumerate(minibatches(model, count)):
        mixed = {}
        for name in weights:
            (s,) = stage[name]
            of, r = 0 if is_vertical else s, replicas[s]
            ahead = 1 if has_two else (sum(replicas[of:]) - 1) // replicas[of]
            version = (k // replicas[of] - ahead) * (replicas[of] // r) + (shift if s == 0 else 0)
            if name in states and "stale" not in words:
                version = len(history[name]) - 1
            mixed[name] = history[name][min(max(version, 0), len(history[name]) - 1)]
        if shared:
            loss, grads, made = shared_gradient(
                model, program, batch, shapes, mixed, shared, replicas_of, of_last
            )
        else:
            loss, grads, made = gradient(model, program, batch, shapes, mixed)
        compare_values(model, "loss of minibatch %d" % (t + 1), [f32(losses[t])], [f32(loss)])
        k += 1
        is_drained = t + 1 in drains or t + 1 == count
        for name, grad in [*grads.items(), *made.items()]:
            r = replicas[stage[name][0]]
            held[name].append(grad)
            if k % r and not is_drained:
                continue
            if name in states:
                n = r if "fewer" in words else len(held[name])
                history[name].append([f32(sum(values) / n) for values in zip(*held[name])])
                held[name] = []
                continue
            total = [0.0] * len(grad)
            for of_replica in held[name]:
                total = [f32(a + b) for a, b in zip(total, of_replica)]
            moments[name] = [f32(0.5 * m + f32(g / r)) for m, g in zip(moments[name], total)]
            history[name].append([f32(w - RATE * m) for w, m in zip(history[name][-1], moments[name])])
            held[name] = []
        if is_drained:
            history, k = {name: [versions[-1]] for name, versions in history.items()}, 0
    made = read_tensors(checkpoint)
    for name, (values,) in history.items():
        compare_values(model, name, made[name], values)
        if name in moments:
            compare_values(model, "momentum of " + name, made[moment_of(made, name)], moments[name])
    print("equal")


def make_first(checkpoint):
    """Small random numbers for each parameter of a checkpoint."""
    r, shapes, all_of = random.Random(13), shapes_of(checkpoint), read_tensors(checkpoint)
    names = [n for n in shapes if any(m != n and m.endswith(n) for m in shapes)]
    made = {n: [r.randint(-512, 512) / 2048 for _ in all_of[n]] for n in names}
    made.update({n: [r.randint(512, 1024) / 1024 for _ in all_of[n]] for n in states_of(all_of)})
    write_tensors("init.safetensors", shapes, made)
    os.makedirs("first.ckpt/step", exist_ok=True)
    write_tensors("first.ckpt/step/a.safetensors", shapes, made)
    open("first.ckpt/latest", "w").write("step")
    with open("first.ckpt/step/model.safetensors.index.json", "w") as f:
        json.dump({"weight_map": dict.fromkeys(made, "a.safetensors")}, f)


if __name__ == "__main__":
    if sys.argv[1] == "data":
        parts = int(sys.argv[5]) if len(sys.argv) > 5 else 1
        batches = minibatches(sys.argv[2], int(sys.argv[3]))
        write_data(sys.argv[2], sys.argv[4], [microbatch(b, 0, parts) for b in batches], parts)
    elif sys.argv[1] == "first":
        make_first(sys.argv[2])
    else:
        check(*sys.argv[2:7], int(sys.argv[7]), numbers(sys.argv[8]), sys.argv[9:])

# server_models.py -- a reference for servers of the parameters of a real model: replays their logs.  The gradient of
# a push comes from a program of one rank whose batch is the share of a worker (dnnc build), given the parameters
# that the worker has got.  History and update are computed here.
#
#   server_models.py check MODEL PROGRAM CHECKPOINT LOG LOGS WORKERS STEPS [newest]
#
# MODEL, PROGRAM, data and the first parameters are those of versions_models.py.  newest: the reference takes the
# newest parameters of each server instead, which differs.
import glob
import json
import sys

import versions_models as models
from versions import compare, f32, read_tensors


class Server:
    """Has parameters, of divided tables the elements of its rows: `of` has them by name."""

    def __init__(self, lines, of, first):
        self.of = of
        self.events = [line for line in lines if line[0] != "#"]
        self.weights = {n: first[n][of[n]] for n in of}
        self.moments = {n: [0.0] * len(self.weights[n]) for n in of}
        self.replies = {}

    def update(self, grads):
        for n, rows in self.of.items():
            self.moments[n] = [f32(0.5 * m + g) for m, g in zip(self.moments[n], grads[n][rows])]
            self.weights[n] = [f32(w - models.RATE * m) for w, m in zip(self.weights[n], self.moments[n])]

    def fill(self, weights, own):
        for n in own:
            weights[n] = weights[n][: self.of[n].start] + own[n] + weights[n][self.of[n].stop :]


def open_servers(logs, shapes, first):
    """Each parameter is on one server, or its rows are on all of them, evenly."""
    lines = [[line.split() for line in open(path)] for path in sorted(glob.glob(logs + "/server-*.log"))]
    begins = {}
    for s, of_server in enumerate(lines):
        for line in of_server:
            if line[:2] == ["#", "parameter"]:
                row = int(line[4]) if line[3:4] == ["rows"] else 0
                begins.setdefault(line[2], []).append((row * len(first[line[2]]) // shapes[line[2]][0], s))
    compare("parameters", sorted(begins), sorted(first))
    parts = [{} for _ in lines]
    for name, of_name in begins.items():
        ends = [begin for begin, _ in of_name[1:]] + [len(first[name])]
        compare("servers of " + name, len(of_name) in (1, len(lines)) and of_name[0][0] == 0, True)
        for (begin, s), end in zip(of_name, ends):
            parts[s][name] = slice(begin, end)
    held = [sum(rows.stop - rows.start for rows in part.values()) for part in parts]
    largest = max(len(first[name]) for name, of_name in begins.items() if len(of_name) == 1)
    compare("even servers", max(held) <= max(1.3 * sum(held) / len(held), largest), True)
    return [Server(of_server, part, first) for of_server, part in zip(lines, parts)]


class Replay:
    def __init__(self, model, program, checkpoint, logs, n_workers, steps, is_newest):
        self.model, self.program, self.n_workers, self.is_newest = model, program, n_workers, is_newest
        self.shapes = models.shapes_of(checkpoint)
        self.first = read_tensors("first.ckpt")
        self.servers = open_servers(logs, self.shapes, self.first)
        self.batches = models.minibatches(model, steps)
        for name, (dtype, shape, limit) in models.MODELS[model].items():
            models.MODELS[model][name] = (dtype, (shape[0] // n_workers,) + shape[1:], limit)
        self.made = {}

    def gradient(self, worker, clock):
        key = (worker, clock)
        if key in self.made or not all(clock == 1 or (worker, clock - 1) in s.replies for s in self.servers):
            return self.made.get(key)
        weights = dict(self.first)
        for s in self.servers:
            s.fill(weights, s.replies.get((worker, clock - 1), {}))
            if self.is_newest:
                s.fill(weights, s.weights)
        share = {}
        for name, values in self.batches[clock - 1].items():
            n = len(values) // self.n_workers
            share[name] = values[worker * n : (worker + 1) * n]
        self.made[key] = models.gradient(self.model, self.program, share, self.shapes, weights)
        return self.made[key]

    def step(self, server):
        kind, worker, clock = server.events[0][0], int(server.events[0][1]), int(server.events[0][2])
        if kind == "push":
            made = self.gradient(worker, clock)
            if not made:
                return False
            server.update(made[1])
        else:
            server.replies[worker, clock] = dict(server.weights)
        server.events.pop(0)
        return True

    def run(self):
        moves = True
        while moves:
            moves = False
            for server in self.servers:
                while server.events and self.step(server):
                    moves = True
        compare("events that are left", sum(len(s.events) for s in self.servers), 0)


def check(model, program, checkpoint, log, logs, n_workers, steps, words):
    replay = Replay(model, program, checkpoint, logs, n_workers, steps, "newest" in words)
    replay.run()
    lines = [json.loads(line) for line in open(log) if line.startswith("{")]
    losses = [line["loss"] for line in lines if "step" in line and "loss" in line]
    compare("steps", len(losses), steps)
    for t, loss in enumerate(losses):
        models.compare_values(model, "loss at clock %d" % (t + 1), [loss], [replay.made[0, t + 1][0]])
    made = read_tensors(checkpoint)
    for server in replay.servers:
        for name, rows in server.of.items():
            momentum = made[models.moment_of(made, name)][rows]
            models.compare_values(model, name, made[name][rows], server.weights[name])
            models.compare_values(model, "momentum of " + name, momentum, server.moments[name])
    print("equal")


if __name__ == "__main__":
    check(*sys.argv[2:7], int(sys.argv[7]), int(sys.argv[8]), sys.argv[9:])

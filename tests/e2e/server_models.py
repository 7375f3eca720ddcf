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
        self.states = {line[2]: first[line[2]] for line in lines if line[:2] == ["#", "state"]}
        self.replies = {}

    def update(self, grads, states, n_workers):
        for n, old in self.states.items():
            self.states[n] = [f32(a + (b - a) / n_workers) for a, b in zip(old, states[n])]
        for n, rows in self.of.items():
            self.moments[n] = [f32(0.5 * m + g) for m, g in zip(self.moments[n], grads[n][rows])]
            self.weights[n] = [f32(w - models.RATE * m) for w, m in zip(self.weights[n], self.moments[n])]

    def values(self):
        return {**self.weights, **self.states}

    def fill(self, weights, own):
        for n in own:
            rows = self.of.get(n, slice(0, len(own[n])))
            weights[n] = weights[n][: rows.start] + own[n] + weights[n][rows.stop :]


def open_servers(logs, shapes, first):
    """Each parameter is on one server, or its rows are on all of them, evenly."""
    lines = [[line.split() for line in open(path)] for path in sorted(glob.glob(logs + "/server-*.log"))]
    begins = {}
    for s, of_server in enumerate(lines):
        for line in of_server:
            if line[:2] == ["#", "parameter"]:
                row = int(line[4]) if line[3:4] == ["rows"] else 0
                begins.setdefault(line[2], []).append((row * len(first[line[2]]) // shapes[line[2]][0], s))
    states = [line[2] for of_server in lines for line in of_server if line[:2] == ["#", "state"]]
    compare("parameters and states", sorted([*begins, *states]), sorted(first))
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
                s.fill(weights, s.values())
        share = {}
        for name, values in self.batches[clock - 1].items():
            n = len(values) // self.n_workers
            share[name] = values[worker * n : (worker + 1) * n]
        made = models.gradient(self.model, self.program, share, self.shapes, weights)
        for name, values in made[2].items():
            if name == "var":
                made[2][name] = self.unbiased(weights[name], values, len(share["y"]))
        self.made[key] = made
        return made

    def unbiased(self, old, new, n):
        """A variance of n samples is moved as if all workers had them: n / (n - 1) is that of the batch."""
        size = n * self.n_workers
        factor = size / (size - 1) * (n - 1) / n
        return [0.9 * a + (b - 0.9 * a) * factor for a, b in zip(old, new)]

    def step(self, server):
        kind, worker, clock = server.events[0][0], int(server.events[0][1]), int(server.events[0][2])
        if kind == "push":
            made = self.gradient(worker, clock)
            if not made:
                return False
            server.update(made[1], made[2], self.n_workers)
        else:
            server.replies[worker, clock] = server.values()
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
        for name, values in server.states.items():
            models.compare_values(model, name, made[name], values)
        for name, rows in server.of.items():
            momentum = made[models.moment_of(made, name)][rows]
            models.compare_values(model, name, made[name][rows], server.weights[name])
            models.compare_values(model, "momentum of " + name, momentum, server.moments[name])
    print("equal")


if __name__ == "__main__":
    check(*sys.argv[2:7], int(sys.argv[7]), int(sys.argv[8]), sys.argv[9:])

# servers.py -- a reference for servers of parameters: replays their logs and trains the model of versions.dnn, or
# of server_conv.dnn, in integers.  It knows the numbers of workers and servers, and how parameters are dealt to
# servers; the logs tell in which order pushes were taken.  Staleness is computed from the pushes, not taken from the logs.
#
#   servers.py check CHECKPOINT LOG LOGS WORKERS SERVERS STALENESS STEPS [--batch N] [--evaluations N,N]
#     [--conv]
#
# LOGS: the folder of --server-log.  STALENESS: a number or "none".  Prints "equal" and the largest staleness, or the
# first difference and ends with 1.
import argparse
import json
import sys

import server_conv
import versions

model = server_conv if "--conv" in sys.argv else versions
PATHS = server_conv.PATHS if "--conv" in sys.argv else ["linear[%d].w" % i for i in range(len(versions.PATTERNS))]


def deal(n_servers):
    """The server of each layer: the largest parameter first, to the server with the fewest bytes."""
    bytes_of = [4 * sum(len(row) for row in model.zeros(i)) for i in range(len(PATHS))]
    held = [0] * n_servers
    owner = [None] * len(bytes_of)
    for layer in sorted(range(len(bytes_of)), key=lambda i: (-bytes_of[i], i)):
        owner[layer] = held.index(min(held))
        held[owner[layer]] += bytes_of[layer]
    mean = sum(held) / n_servers
    assert max(held) <= 1.3 * mean or max(held) in bytes_of, "the servers are not even: %s" % held
    return owner


class Server:
    def __init__(self, path, layers, n_workers):
        self.events = [line.split() for line in open(path) if not line.startswith("#")]
        self.at = 0
        self.layers = layers
        self.weights = {i: model.zeros(i) for i in layers}
        self.moments = {i: model.zeros(i) for i in layers}
        self.clocks = [0] * n_workers
        self.replies = {}  # by worker and clock: weights


class Replay:
    def __init__(self, args):
        self.batch, self.n_workers = args.batch, args.workers
        self.x, self.y = model.records()
        owner = deal(args.servers)
        self.servers = [
            Server("%s/server-%d.log" % (args.logs, s), [i for i, o in enumerate(owner) if o == s], args.workers)
            for s in range(args.servers)
        ]
        self.limit = None if args.staleness == "none" else int(args.staleness)
        self.gradients, self.losses = {}, {}
        self.largest = 0

    def gradient(self, worker, clock):
        """That of a share, times the number of workers; None where the worker has not got its parameters yet."""
        key = (worker, clock)
        if key in self.gradients:
            return self.gradients[key]
        weights = {i: model.zeros(i) for s in self.servers for i in s.layers}
        for server in self.servers:
            if clock > 1 and (worker, clock - 1) not in server.replies:
                return None
            if clock > 1:
                weights.update(server.replies[worker, clock - 1])
        share = self.batch // self.n_workers
        begin = (clock - 1) * self.batch + worker * share
        rows = slice(begin, begin + share)
        used = [model.weights_of(i, weights[i]) for i in range(len(weights))]
        loss, grads = model.gradients(self.x[rows], self.y[rows], used)
        scaled = [[[self.n_workers * v for v in row] for row in g] for g in grads]
        self.losses[key] = self.n_workers * loss
        self.gradients[key] = scaled
        return scaled

    def push(self, server, worker, clock):
        grads = self.gradient(worker, clock)
        if grads is None:
            return False
        model.compare("clock of worker %d" % worker, clock, server.clocks[worker] + 1)
        for i in server.layers:
            server.weights[i], server.moments[i] = model.update(server.weights[i], server.moments[i], grads[i])
        server.clocks[worker] = clock
        return True

    def reply(self, server, worker, clock, versions):
        model.compare("clocks in the reply to %d at %d" % (worker, clock), versions, server.clocks)
        stale = clock - min(server.clocks)
        self.largest = max(self.largest, stale)
        if self.limit is not None and stale > self.limit:
            print("a reply at clock %d is %d behind" % (clock, stale))
            sys.exit(1)
        server.replies[worker, clock] = dict(server.weights)

    def step(self, server):
        kind, *rest = server.events[server.at]
        worker, clock, *clocks = [int(n) for n in rest]
        if kind == "push" and not self.push(server, worker, clock):
            return False
        if kind == "reply":
            self.reply(server, worker, clock, clocks)
        server.at += 1
        return True

    def run(self):
        moves = True
        while moves:
            moves = False
            for server in self.servers:
                while server.at < len(server.events) and self.step(server):
                    moves = True
        for server in self.servers:
            model.compare("events replayed", server.at, len(server.events))

    def evaluation(self, clock):
        weights = {}
        for server in self.servers:
            weights.update(server.replies[0, clock])
        newest = [model.weights_of(i, weights[i]) for i in range(len(weights))]
        first = model.RECORDS - model.EVALUATED
        total = sum(
            model.loss_of(model.forward(self.x[at : at + self.batch], newest)[0], self.y[at : at + self.batch])
            for at in range(first, model.RECORDS, self.batch)
        )
        return total / (model.EVALUATED // self.batch)


def check(args):
    replay = Replay(args)
    replay.run()
    lines = [json.loads(line) for line in open(args.log) if line.startswith("{")]
    for line in lines:
        if "step" in line and "loss" in line:
            model.compare("loss at clock %d" % line["step"], line["loss"], replay.losses[0, line["step"]])
        elif "step" in line and args.evaluations:
            model.compare("evaluation after %d" % line["step"], line["validation_loss"], replay.evaluation(line["step"]))
    seen = [line["step"] for line in lines if "step" in line and "loss" not in line]
    if args.evaluations:
        model.compare("evaluations", seen, model.numbers(args.evaluations) + [args.steps])
    for server in replay.servers:
        model.compare("last clocks", server.clocks, [args.steps] * args.workers)
    tensors = model.read_tensors(args.checkpoint)
    for server in replay.servers:
        for i in server.layers:
            for path, value in ((PATHS[i], server.weights[i]), ("sgd.m/" + PATHS[i], server.moments[i])):
                model.compare(path, tensors[path], [v for row in value for v in row])
    print("equal, largest staleness %d" % replay.largest)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["check"])
    parser.add_argument("checkpoint")
    parser.add_argument("log")
    parser.add_argument("logs")
    parser.add_argument("workers", type=int)
    parser.add_argument("servers", type=int)
    parser.add_argument("staleness")
    parser.add_argument("steps", type=int)
    parser.add_argument("--batch", type=int, default=model.BATCH)
    parser.add_argument("--evaluations")
    parser.add_argument("--conv", action="store_true")
    check(parser.parse_args())

"""PipeDream's objective: what its own planner finds, and bench_pipedream.

    python3 benchmarks/pipedream.py BENCH_PIPEDREAM PROFILES

PROFILES has MODEL/graph.txt.  The figures of PipeDream's planner were measured
with its code of July 2021 and `--activation_compression_ratio 1`, which is the
objective of --sync sum4.  Over levels it prices pairs of cuts of which neither
precedes the other, and a source of the graph other than the first always belongs
to its first reader: where a graph branches, its figure is an upper bound.

Exit status 1: an objective is more than 0.1 % away from (of a bound: above) the
peer's, a run takes 1 s of processor time, another order of the profile's lines
changes a byte, or a plan under --sync max is none of those that are published:
VGG-16 and AlexNet 15-1, ResNet-50 without stages, GNMT no slower than any stages
without replicas, which take the time of the largest layer at least.
"""
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile

# For each model: ms of a minibatch on 4, 8, 16 machines at 1 GB/s, and seconds
# that the peer took in Python.  The last two of densenet121 come from another
# solver of the same recurrence.
FLAT = {
    "vgg16": ((205.52, 0.07), (103.83, 0.08), (56.53, 0.14)),
    "alexnet": ((34.22, 0.06), (18.87, 0.06), (18.87, 0.08)),
    "resnet50": ((162.88, 0.31), (92.01, 0.92), (47.80, 2.92)),
    "gnmt": ((25.87, 0.10), (19.28, 0.17), (19.28, 0.46)),
    "squeezenet1_0": ((74.41, 0.09), (37.69, 0.18), (18.88, 0.59)),
    "densenet121": ((89.98, 1.1), (47.12, None), (24.55, None)),
}
LEVELS = {"A": ("4 4", "12e9 1.25e9"), "B": ("8 2", "30e9 3.125e9")}
LEVELED = {
    "vgg16": ((66.89, 0.2), (65.77, 0.8)),
    "alexnet": ((15.10, 0.2), (9.68, 0.3)),
    "resnet50": ((43.21, 48.9), (31.99, 161.7)),
    "gnmt": ((11.08, 1.7), (8.86, 6.6)),
}
BOUNDS = ("gnmt", "resnet50")
PUBLISHED = {"vgg16": "15-1", "alexnet": "15-1", "resnet50": "16"}
MOST_ERROR, MOST_SECONDS = 0.001, 1.0
failures = []


def fail(text):
    failures.append(text)
    print("FAIL:", text)


def run(bench, folder, *options):
    """The output for a profile, and the processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([bench, "graph.txt", *options, "--json"], cwd=folder,
                          stdout=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{folder} {' '.join(options)}: exit {done.returncode}")
    return done.stdout, (after.ru_utime + after.ru_stime - before.ru_utime
                         - before.ru_stime)


def shuffled(folder, scratch):
    """A folder with the profile's lines in another order."""
    lines = open(os.path.join(folder, "graph.txt")).read().splitlines()
    order = random.Random(os.path.basename(folder))
    nodes = [line for line in lines if not line.startswith("\t")]
    edges = [line for line in lines if line.startswith("\t")]
    order.shuffle(nodes)
    order.shuffle(edges)
    copy = os.path.join(scratch, os.path.basename(folder))
    os.makedirs(copy, exist_ok=True)
    with open(os.path.join(copy, "graph.txt"), "w") as file:
        file.write("\n".join(nodes + edges) + "\n")
    return copy


def row(bench, folder, scratch, what, machines, bandwidth, peer, is_bound):
    """Prints a row of the table; `peer` has its ms and its seconds."""
    peer, peer_s = peer
    model = os.path.basename(folder)
    options = ["--machines", *machines.split(), "--bandwidth",
               *bandwidth.split(), "--sync", "sum4"]
    text, seconds = run(bench, folder, *options)
    again, _ = run(bench, shuffled(folder, scratch), *options)
    if again != text:
        fail(f"{model} {what}: another order of lines, other bytes")
    plan = json.loads(text)
    ours = plan["minibatch_s"] * 1e3
    error = ours / peer - 1
    if error > MOST_ERROR or (error < -MOST_ERROR and not is_bound):
        fail(f"{model} {what}: {error:+.2%}")
    if seconds >= MOST_SECONDS:
        fail(f"{model} {what}: {seconds:.2f} s")
    gain = plan["data_parallel_s"] / plan["minibatch_s"]
    print(f"| {model} | {what} | {plan['plan'].replace('|', '/')} | "
          f"{'at most ' if is_bound else ''}{peer:.2f} | {ours:.3f} | "
          f"{plan['one_machine_s'] / plan['minibatch_s']:.2f} | {gain:.2f} | "
          f"{peer_s or '-'} | {seconds:.3f} |")


def largest_layer_s(folder):
    """The time of the layer that takes longest; inputs are no layers."""
    times = [0.0]
    for line in open(os.path.join(folder, "graph.txt")):
        found = re.search(r" -- forward_compute_time=([\d.]+), "
                          r"backward_compute_time=([\d.]+),", line)
        if found and " -- Input" not in line:
            times.append((float(found[1]) + float(found[2])) / 1e3)
    return max(times)


def published(bench, folder):
    model = os.path.basename(folder)
    text, _ = run(bench, folder, "--machines", "16", "--bandwidth", "1e9")
    plan = json.loads(text)
    gain = plan["data_parallel_s"] / plan["minibatch_s"]
    print(f"| {model} | {PUBLISHED.get(model, 'straight')} | {plan['plan']} | "
          f"{plan['minibatch_s'] * 1e3:.3f} | {gain:.2f} |")
    if model in PUBLISHED and plan["plan"] != PUBLISHED[model]:
        fail(f"{model}: {plan['plan']}, published {PUBLISHED[model]}")
    if model == "gnmt" and plan["minibatch_s"] > largest_layer_s(folder):
        fail("gnmt: slower than its largest layer")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    bench, profiles = map(os.path.abspath, sys.argv[1:])
    print("| model | machines | plan | peer's ms | ms | x one machine | "
          "x data parallelism | peer's wall s | CPU s |\n"
          "|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for model, peers in FLAT.items():
            folder = os.path.join(profiles, model)
            for machines, peer in zip(("4", "8", "16"), peers):
                row(bench, folder, scratch, machines, machines, "1e9", peer,
                    False)
        for model, peers in LEVELED.items():
            folder = os.path.join(profiles, model)
            for (name, (machines, bandwidth)), peer in zip(LEVELS.items(),
                                                           peers):
                row(bench, folder, scratch, name, machines, bandwidth, peer,
                    model in BOUNDS)
    print("\n| model | published | plan | ms | x data parallelism |\n"
          "|---|---|---|---|---|")
    for model in ("vgg16", "alexnet", "resnet50", "gnmt"):
        published(bench, os.path.join(profiles, model))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Plans that `dnnc plan` finds, against data parallelism, ZeRO and written plans.

    python3 benchmarks/bench_plan.py DNNC [--no-written] [ROW ...]

A row is a model on some ranks of a cluster; without names all are run.  Each
line has the plan in words, its step, that of the best opponent, and processor
and wall time of the search.  Opponents are priced by `dnnc simulate`:

    data parallelism and ZeRO 1 to 3, with every power of two of micro-batches
    each plan of benchmarks/plans that compiles for the model: one axis after the
        other gets the ranks that its mesh lacks, and micro-batches are doubled
        until it fits and is no faster

Exit status 1: nothing was found, `simulate` gives the printed plan another
step, it does not fit, or an opponent that fits is faster.
"""
import glob
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LLAMA70 = ["C=8192", "F=28672", "L=80", "H=8"]
CNN = ("vgg16", "alexnet", "resnet50", "vit", "bert")
MOST_MICROBATCHES = 1024

ROWS = {}
for n in (64, 256, 1024):
    ROWS[f"gpt3-{n}"] = ("gpt3", [], "a100x1024", n)
for n in (8, 64):
    ROWS[f"llama-{n}"] = ("llama", [], "h100x256", n)
for n in (32, 256):
    ROWS[f"llama70b-{n}"] = ("llama", LLAMA70, "h100x256", n)
ROWS["moe-64"] = ("moe", [], "h100x256", 64)
for name in CNN:
    for cluster, n in (("pipedream-a", 16), ("pipedream-b", 16),
                       ("h100x256", 8)):
        ROWS[f"{name}-{cluster}"] = (name, [], cluster, n)
ROWS["vgg16-mixed"] = ("vgg16", [], "mixed", None)


def command(dnnc, verb, row, *options):
    model, sizes, cluster, ranks = row
    words = [dnnc, verb, os.path.join(ROOT, f"models/{model}.dnn"), *sizes,
             "--cluster", os.path.join(ROOT, f"models/{cluster}.cluster")]
    if ranks and verb == "plan":
        words += ["--ranks", str(ranks)]
    return words + list(options)


def run(words, **options):
    begin = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime -
           before.ru_stime)
    return done, cpu, time.monotonic() - begin


def simulated(dnnc, row, path, *options):
    """The price of a plan, or None where it is refused."""
    done, _, _ = run(command(dnnc, "simulate", row, "--plan", path, "--json",
                             *options))
    return json.loads(done.stdout) if done.returncode == 0 else None


def powers_of_two():
    return [1 << i for i in range(MOST_MICROBATCHES.bit_length())]


def zero_opponents(dnnc, row, ranks, folder):
    path = os.path.join(folder, "zero.plan")
    for zero in range(4):
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"mesh {{\n  data = {ranks}\n}}\n\nplan {{\n  zero = "
                       f"{zero}\n}}\n")
        for m in powers_of_two():
            price = simulated(dnnc, row, path, "--microbatches", str(m))
            if price and price["fits"]:
                yield price["step_s"], f"zero{zero}-{m}"


def meshes(text, ranks):
    """The plan on so many ranks: one axis gets what the others leave."""
    block = re.search(r"mesh \{(.*?)\}", text, re.S)
    axes = re.findall(r"(\w+) *= *(\d+)", block[1]) if block else []
    seen = set()
    for grown, (_, size) in enumerate(axes):
        left = math.prod(int(n) for _, n in axes) // int(size)
        if ranks % left != 0:
            continue
        sizes = [ranks // left if i == grown else int(n)
                 for i, (_, n) in enumerate(axes)]
        if tuple(sizes) in seen:
            continue
        seen.add(tuple(sizes))
        mesh = "".join(f"  {name} = {n}\n"
                       for (name, _), n in zip(axes, sizes))
        yield sizes, (text[:block.start()] + "mesh {\n" + mesh + "}" +
                      text[block.end():])


def fastest_microbatches(dnnc, row, path, *options):
    best = None
    for m in powers_of_two():
        price = simulated(dnnc, row, path, "--microbatches", str(m), *options)
        if not price:
            break
        if price["fits"]:
            if best and price["step_s"] >= best[0]:
                break
            best = price["step_s"], m
    return best


def written_opponents(dnnc, row, ranks, folder):
    path = os.path.join(folder, "written.plan")
    for written in sorted(glob.glob(os.path.join(ROOT,
                                                 "benchmarks/plans/*.plan"))):
        with open(written, encoding="utf-8") as file:
            text = file.read()
        name = os.path.basename(written)[:-len(".plan")]
        for sizes, scaled in meshes(text, ranks):
            with open(path, "w", encoding="utf-8") as file:
                file.write(scaled)
            best = fastest_microbatches(dnnc, row, path)
            if best:
                yield best[0], f"{name}, {'x'.join(map(str, sizes))}-{best[1]}"


def best_opponent(dnnc, row, ranks, folder, has_written):
    """The fastest that fits: its step and name, or None."""
    opponents = list(zero_opponents(dnnc, row, ranks, folder))
    if has_written:
        opponents += written_opponents(dnnc, row, ranks, folder)
    return min(opponents, default=None)


def check(dnnc, name, row, folder, has_written):
    plan = os.path.join(folder, "found.plan")
    done, cpu, wall = run(command(dnnc, "plan", row, "--json", "--quiet", "-o",
                                  plan))
    if done.returncode != 0:
        print(f"{name:24} exit {done.returncode}: "
              f"{done.stderr.splitlines()[0] if done.stderr else ''}")
        return False
    found = json.loads(done.stdout)
    ranks = sum(of["ranks"] for of in found["ranks"])
    price = simulated(dnnc, row, plan) or {}
    best = best_opponent(dnnc, row, ranks, folder, has_written)
    faults = []
    if price.get("step_s") != found["step_s"]:
        faults.append("simulate gives another step")
    if not found["fits"]:
        faults.append("does not fit")
    if best and best[0] < found["step_s"]:
        faults.append(f"{best[1]} is faster")
    shown = f"{best[0] * 1e3:.1f} ms ({best[1]})" if best else "none fits"
    print(f"{name:24} {found['step_s'] * 1e3:10.1f} ms  {shown:34} "
          f"{100 * found['mfu']:5.1f} % {found['candidates']:5} {cpu:6.1f} s "
          f"{wall:6.1f} s  {found['words']}{'  FAULT: ' if faults else ''}"
          f"{', '.join(faults)}", flush=True)
    return not faults


def main():
    dnnc, words = os.path.abspath(sys.argv[1]), sys.argv[2:]
    has_written = "--no-written" not in words
    names = [word for word in words if word != "--no-written"] or list(ROWS)
    print(f"{'row':24} {'step':>13}  {'best of the others':34} "
          f"{'MFU':>7} {'tried':>5} {'CPU':>8} {'wall':>8}  plan")
    is_good = True
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            is_good &= check(dnnc, name, ROWS[name], folder, has_written)
    sys.exit(not is_good)


if __name__ == "__main__":
    main()

"""Plans that `dnnc plan` finds, against data parallelism, ZeRO and written plans.

    python3 benchmarks/bench_plan.py DNNC [--no-written] [--state FILE] [ROW ...]

A row is a model on some ranks of a cluster; without names all are run, and
`branching` and `chains` stand for those of models with branches or loops, and
for the others.  FILE keeps a line of JSON for each row that is done, and a later
run goes on with those that it lacks: a run may end at any time.  Opponents are
priced by `dnnc simulate`:

    data parallelism and ZeRO 1 to 3, with every power of two of micro-batches
    each plan of benchmarks/plans that compiles for the model: one axis after the
        other gets the ranks that its mesh lacks, and micro-batches are doubled
        until it fits and is no faster

The table has, beside steps and processor time (user and system) of `plan` and
of `simulate` of its plan:

    gap         from the step to the bound
    search gap  from the largest mean of loads of the plan to the bound, and
                what binds there
    joined      how much shorter the step is where no transfer has a latency:
                the most that joined sums could save, as bytes stay the same
    order       how much shorter it could be at most by another order of the same
                launches (price_loads beside DNNC); no figure on unlike devices

Exit status 1: nothing was found, `simulate` gives the printed plan another
step, it does not fit, or an opponent that fits is faster.
"""
import argparse
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
BRANCHING = ("inception_v3", "unet", "gnmt8", "s2vt", "amoebanet",
             "densenet121", "googlenet")
SIZES = {"unet": ["N=32"]}
KINDS = {"chains": list(ROWS), "branching": []}
for name in BRANCHING:
    for cluster, n in (("pipedream-a", 16), ("pipedream-b", 16),
                       ("h100x256", 8), ("mixed", None)):
        KINDS["branching"].append(f"{name}-{cluster}")
        ROWS[f"{name}-{cluster}"] = (name, SIZES.get(name, []), cluster, n)


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
            if not price:
                break
            if price["fits"]:
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


def distance(dnnc, row, path):
    """What no order of the launches of a plan saves less than, or None."""
    model, sizes, cluster, ranks = row
    words = [os.path.join(os.path.dirname(dnnc), "price_loads"),
             os.path.join(ROOT, f"models/{model}.dnn"), path,
             os.path.join(ROOT, f"models/{cluster}.cluster"), *sizes]
    done, _, _ = run(words + ([f"ranks={ranks}"] if ranks else []))
    found = re.search(r"distance ([\d.]+) %", done.stdout)
    return float(found[1]) / 100 if found else None


def measure(dnnc, row, has_written):
    """What FILE keeps of a row."""
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "found.plan")
        done, cpu, wall = run(command(dnnc, "plan", row, "--json", "--quiet",
                                      "-o", plan))
        if done.returncode != 0:
            lines = done.stderr.splitlines() or ["without a word"]
            return {"exit": done.returncode, "message": lines[0], "cpu_s": cpu}
        found = json.loads(done.stdout)
        priced, simulate_cpu, _ = run(command(dnnc, "simulate", row, "--plan",
                                              plan, "--json"))
        step = json.loads(priced.stdout)["step_s"] if priced.stdout else None
        at_once = simulated(dnnc, row, plan, "--without", "latency")
        ranks = sum(of["ranks"] for of in found["ranks"])
        kept = {key: found.get(key) for key in (
            "step_s", "fits", "mfu", "candidates", "words", "bound_s", "gap",
            "search_gap", "load", "no_bound", "no_search_gap", "solved")}
        return {"exit": 0, **kept, "cpu_s": cpu, "wall_s": wall,
                "simulate_cpu_s": simulate_cpu,
                "is_same_step": step == found["step_s"],
                "joined": 1 - at_once["step_s"] / found["step_s"],
                "order": distance(dnnc, row, plan),
                "best": best_opponent(dnnc, row, ranks, folder, has_written),
                "has_written": has_written}


def faults_of(row):
    if row["exit"] != 0:
        return [f"exit {row['exit']}: {row['message']}"]
    faults = []
    if not row["is_same_step"]:
        faults.append("simulate gives another step")
    if not row["fits"]:
        faults.append("does not fit")
    if row["best"] and row["best"][0] < row["step_s"]:
        faults.append(f"{row['best'][1]} is faster by "
                      f"{100 * (1 - row['best'][0] / row['step_s']):.2g} %")
    return faults


def percent(share):
    return "" if share is None else f"{100 * share:.1f} %"


def cells_of(name, row):
    if row["exit"] != 0:
        return [name, f"exit {row['exit']}"] + [""] * 11
    best = row["best"]
    binds = row.get("load") or row.get("no_search_gap") or row.get("no_bound")
    solved = row["solved"]
    return [name, f"{row['step_s'] * 1e3:.1f}",
            f"{best[0] * 1e3:.1f}, {best[1]}" if best else "none fits",
            percent(row["gap"]), percent(row["search_gap"]), binds or "",
            percent(row["joined"]), percent(row["order"]),
            f"{solved['elimination']} / {solved['engine']}",
            f"{row['cpu_s']:.1f} ({row['simulate_cpu_s']:.2f})",
            f"{row['cpu_s'] / row['simulate_cpu_s']:.0f}",
            f"{row['candidates']}", row["words"]]


def print_table(rows):
    cells = ["row", "step, ms", "best of the others, ms", "gap", "search gap",
             "what binds", "joined", "order", "eliminated / engine",
             "CPU s (simulate)", "times", "tried", "plan"]
    print("| " + " | ".join(cells) + " |")
    print("|" + "---|" * len(cells))
    for name in ROWS:
        if name in rows:
            print("| " + " | ".join(cells_of(name, rows[name])) + " |")


def read_rows(path):
    rows = {}
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                kept = json.loads(line)
                rows[kept.pop("row")] = kept
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dnnc")
    parser.add_argument("--no-written", action="store_true")
    parser.add_argument("--state")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    words = parser.parse_intermixed_args()
    dnnc, rows = os.path.abspath(words.dnnc), read_rows(words.state)
    names = [name for word in words.rows or KINDS
             for name in KINDS.get(word, [word])]
    for name in names:
        if name in rows:
            continue
        rows[name] = measure(dnnc, ROWS[name], not words.no_written)
        if words.state:
            with open(words.state, "a", encoding="utf-8") as file:
                file.write(json.dumps({"row": name, **rows[name]}) + "\n")
    print_table(rows)
    faults = {name: faults_of(row) for name, row in rows.items()}
    for name, found in faults.items():
        if found:
            print(f"FAULT: {name}: {', '.join(found)}")
    sys.exit(any(faults.values()))


if __name__ == "__main__":
    main()

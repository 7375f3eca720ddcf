"""iopddl_parts.py -- what each part of the engine gives on problems of the contest.

    python3 benchmarks/iopddl_parts.py [--cpu] RESULTS FILE SECONDS [FILE SECONDS]...

It solves each file by build/bench_iopddl with all parts, and without each one
alone, for SECONDS of the clock on two threads, or with --cpu for SECONDS of
processor time on one thread.  RESULTS gets a line of JSON for each run; runs
that it has already are not made again, so that the command goes on where it
stopped.  A line holds for the program and the time it was made with: a changed
program starts anew.  The table has cost and bound, over those of best-known.csv
beside FILE where that has the file's name, and the nodes.
"""
import csv
import hashlib
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCH = os.path.join(ROOT, "build", "bench_iopddl")
PARTS = os.path.join(ROOT, "planner", "factor", "parts.def")


def name_of(path):
    return os.path.basename(path).split(".")[0]


def read_results(path):
    if not os.path.exists(path):
        return {}
    with open(path, "r+") as file:
        text = file.read()
        end = text.rfind("\n") + 1
        file.truncate(end)  # a line that was cut where the command stopped
        lines = text[:end].splitlines()
    return {tuple(of["key"]): of for of in map(json.loads, lines)}


def solve(path, clock, seconds, part):
    options = [clock, seconds, "--json",
               "--threads", "1" if clock == "--cpu" else "2"]
    if part != "none":
        options += ["--without", part]
    done = subprocess.run([BENCH, path, *options], capture_output=True,
                          text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{path} {' '.join(options)}: {done.stderr}")
    return json.loads(done.stdout)


def known(path):
    """The best cost that was submitted, and the bound that was published."""
    table = os.path.join(os.path.dirname(path), "best-known.csv")
    if os.path.exists(table):
        with open(table) as file:
            for row in csv.DictReader(file):
                if row["instance"] == name_of(path):
                    return (int(row["best_submitted"]),
                            int(row["lower_bound_published"]))
    return None


def cell(number, over):
    if number is None:
        return "-"
    return f"{number / over:.4f}" if over else str(number)


def print_table(rows, files, results):
    names = [name_of(path) for path, _ in files]
    print("| without | " + " | ".join(f"{name}: cost, bound, nodes"
                                      for name in names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for part, keys in rows:
        cells = []
        for (path, _), key in zip(files, keys):
            result, over = results[key], known(path) or (None, None)
            proved = " proved" if result["outcome"] == "proved" else ""
            cells.append(f"{cell(result['cost'], over[0])}{proved}, "
                         f"{cell(result['bound'], over[1])}, "
                         f"{result['nodes']:,}")
        print(f"| {part} | " + " | ".join(cells) + " |")


def main():
    arguments = sys.argv[1:]
    clock = "--time"
    if arguments[:1] == ["--cpu"]:
        clock = arguments.pop(0)
    if len(arguments) < 3 or len(arguments) % 2 == 0:
        sys.exit(__doc__)
    store, *pairs = arguments
    files = list(zip(pairs[::2], pairs[1::2]))
    with open(BENCH, "rb") as file:
        program = hashlib.sha256(file.read()).hexdigest()[:16]
    with open(PARTS) as file:
        parts = ["none", *re.findall(r"^PART\((\w+),", file.read(), re.M)]
    results, rows = read_results(store), []
    for part in parts:
        keys = [(program, name_of(path), clock, seconds, part)
                for path, seconds in files]
        rows.append((part, keys))
        for key, (path, seconds) in zip(keys, files):
            if key in results:
                continue
            results[key] = {"key": key, **solve(path, clock, seconds, part)}
            with open(store, "a") as file:
                file.write(json.dumps(results[key]) + "\n")
    print_table(rows, files, results)


main()

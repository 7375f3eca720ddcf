"""check.py -- checks what bench_iopddl says, with code of its own.

    check.py BENCH [FILE.json[.gz] SECONDS]...

Without files it solves example.json, a few random problems (small ones are
compared with all their values) and files that are damaged, each of which must be
refused at its place.  With files it prints cost, peak and bound of each.
"""

import gzip
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile

FORBIDDEN = 10**17


def fail(text):
    sys.exit(f"FAIL: {text}")


def read(path):
    opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
    with opened as file:
        return json.load(file)["problem"]


def cost_of(problem, values):
    nodes, edges = problem["nodes"], problem["edges"]
    parts = [costs[v] for costs, v in zip(nodes["costs"], values)]
    for (a, b), costs in zip(edges["nodes"], edges["costs"]):
        parts.append(costs[values[a] * len(nodes["costs"][b]) + values[b]])
    return None if max(parts) >= FORBIDDEN else sum(parts)


def peak_of(problem, values):
    """The most that is in use at a time: half-open intervals, event by event."""
    nodes, changes = problem["nodes"], {}
    for (begin, end), usages, v in zip(nodes["intervals"], nodes["usages"],
                                       values):
        changes[begin] = changes.get(begin, 0) + usages[v]
        changes[end] = changes.get(end, 0) - usages[v]
    sums = itertools.accumulate(changes[time] for time in sorted(changes))
    return max(sums, default=0)


def run(bench, path, *options):
    return subprocess.run([bench, path, "--json", *options],
                          capture_output=True, text=True, timeout=600)


def check(bench, path, folder, *options):
    """Solves a file; returns the result after it is computed again."""
    out = os.path.join(folder, "solution.json")
    done = run(bench, path, "--solution", out, *options)
    if done.returncode not in (0, 1):
        fail(f"{path}: exit status {done.returncode}: {done.stderr}")
    result, problem = json.loads(done.stdout), read(path)
    if (result["cost"] is None) != (done.returncode == 1):
        fail(f"{path}: exit status {done.returncode} with {result}")
    if result["cost"] is None:
        return result
    values = json.load(open(out))
    if cost_of(problem, values) != result["cost"]:
        fail(f"{path}: cost {cost_of(problem, values)}, not {result}")
    result["peak"] = peak_of(problem, values)
    if "--no-limit" not in options and result["peak"] > problem["usage_limit"]:
        fail(f"{path}: {result['peak']} of {problem['usage_limit']} are in use")
    if result["bound"] > result["cost"]:
        fail(f"{path}: bound {result['bound']} above {result['cost']}")
    return result


# ---- random problems ----


def make_problem(draw, n, n_edges):
    costs = [[draw.randrange(100) for _ in range(draw.randint(1, 4))]
             for _ in range(n)]
    pairs = [draw.sample(range(n), 2) for _ in range(n_edges)]
    intervals = [sorted(draw.choices(range(2 * n), k=2)) for _ in range(n)]
    usages = [[draw.randrange(50) for _ in row] for row in costs]
    problem = {
        "nodes": {"costs": costs, "intervals": intervals, "usages": usages},
        "edges": {"nodes": pairs, "costs": [
            [draw.choice([0, draw.randrange(100), 10**18 if draw.random() < .2
                          else 7]) for _ in range(len(costs[a]) * len(costs[b]))]
            for a, b in pairs]}}
    least = peak_of(problem, [row.index(min(row)) for row in usages])
    problem["usage_limit"] = least + least // 10
    return problem


def least_cost(problem):
    ranges = [range(len(row)) for row in problem["nodes"]["costs"]]
    costs = [cost_of(problem, values) for values in itertools.product(*ranges)
             if peak_of(problem, values) <= problem["usage_limit"]]
    return min((cost for cost in costs if cost is not None), default=None)


def check_random(bench, folder):
    draw = random.Random(5)
    for case in range(12):
        small = case < 8
        problem = make_problem(draw, 6 if small else 60, 9 if small else 90)
        path = os.path.join(folder, "random.json.gz")
        with gzip.open(path, "wt") as file:
            json.dump({"problem": problem}, file)
        result = check(bench, path, folder, "--nodes", "3000")
        again = check(bench, path, folder, "--nodes", "3000")
        if {**result, "seconds": 0} != {**again, "seconds": 0}:
            fail(f"two runs differ: {result}, {again}")
        if small and (result["cost"] != least_cost(problem)
                      or result["outcome"] not in ("proved", "none")):
            fail(f"case {case}: {result}, not {least_cost(problem)}")


# ---- damaged files ----

# A text of example.json, its replacement, the place of the fault.
DAMAGES = [
    ("[30, 70]", "[70, 30]", "6:9", "an interval ends before it begins"),
    ("[30, 70]", "[-30, 70]", "6:10", "a number may not be negative"),
    ("[30, 70]", "[30]", "6:9", "an interval has two numbers"),
    ("[55, 65]", "[]", "14:9", "a node needs a strategy"),
    ("[55, 65]", "[55, 6.5]", "14:14", "a number must be an integer"),
    ("[55, 65]", "[55, 99999999999999999999]", "14:14",
     "a number has at most 63 bits"),
    ("[25, 25]", "[25]", "21:9", "a node needs a usage for each strategy"),
    ("[0, 2]", "[0, 5]", "30:9", "there is no such node"),
    ("[0, 2]", "[2, 2]", "30:9", "an edge joins two different nodes"),
    ("[0, 2]", "[0, 1, 2]", "30:9", "an edge joins two nodes"),
    ("[70, 60]", "[70, 60, 1]", "40:9",
     "an edge needs a cost for each pair of strategies"),
    ("[70, 60]", "[70 60]", "40:13", "']' must be here"),
    ('"intervals"', '"costs"', "12:15", "this key is there twice"),
    ('"problem"', '"problems"', None, "'problem' is missing"),
]


def refused(bench, path, text):
    with open(path, "w") as file:
        file.write(text)
    done = run(bench, path, "--nodes", "10")
    if done.returncode != 2 or done.stdout or done.stderr.count("\n") != 1:
        fail(f"exit status {done.returncode}, {done.stderr!r}, of\n{text}")
    return done.stderr.strip()


def check_damages(bench, folder, text):
    path = os.path.join(folder, "damaged.json")
    for old, new, place, message in DAMAGES:
        if old not in text:
            fail(f"example.json has no {old}")
        said = refused(bench, path, text.replace(old, new, 1))
        wanted = f"{path}:{place}: {message}" if place else message
        if not said.startswith(path) or not said.endswith(wanted):
            fail(f"{said!r}, not {wanted!r}")
    end = text.rstrip()
    for n in range(0, len(end), 7):
        refused(bench, path, end[:n])
    said = refused(bench, path, '{"a": ' + "[" * 100000)
    if not said.endswith("lists nest too deep"):
        fail(said)
    refused(bench, os.path.join(folder, "cut.gz"), "\x1f not packed")
    if "cannot open" not in run(bench, folder + "/none").stderr:
        fail("a file that is not there")


def check_memory(bench, folder):
    """Many lists in a small packed file take no more than a multiple."""
    path = os.path.join(folder, "many.json.gz")
    with gzip.open(path, "wt") as file:
        file.write('{"problem": {"nodes": {"costs": [' +
                   ",".join(["[]"] * 3000000))
    done = run(bench, path, "--nodes", "10")
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    if done.returncode != 2 or used > 600:
        fail(f"many lists: exit status {done.returncode}, {used} MB")


def main():
    bench, files = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        for at in range(0, len(files), 2):
            result = check(bench, files[at], folder, "--time", files[at + 1])
            print(files[at], json.dumps(result), flush=True)
        if files:
            return
        example = os.path.join(os.path.dirname(__file__), "example.json")
        result = check(bench, example, folder, "--nodes", "1000")
        if result["cost"] != least_cost(read(example)):
            fail(f"example.json: {result}")
        check_random(bench, folder)
        check_damages(bench, folder, open(example).read())
        check_memory(bench, folder)


if __name__ == "__main__":
    main()

"""same.py -- the same node budget gives the same bytes with each compiler and
any number of threads.

    same.py [FILE.json[.gz] NODES]...

It builds bench_iopddl by gcc and, at another level of optimisation, by clang (by
the one that is there, if one is missing), and solves random problems under a
limit of memory, and the files, on 1, 2 and 4 threads: results and values must
be equal.
`--without unpriced` lets several threads work from the first round on.
"""

import glob
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

from check import fail, peak_of, run

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
SOURCES = ["planner/factor/*.c", "planner/recheck/duals*.c", "support/*.c",
           "benchmarks/bench_iopddl.c", "benchmarks/iopddl.c"]
NODES = 400


def build(compiler, level, folder):
    """The flags are those of CMakeLists.txt that arithmetic depends on."""
    bench = os.path.join(folder, f"bench-{compiler}{level}")
    files = [file for name in SOURCES
             for file in sorted(glob.glob(os.path.join(ROOT, name)))]
    subprocess.run([compiler, "-std=gnu11", level, "-ffp-contract=off",
                    "-D_GNU_SOURCE", "-I", ROOT, "-o", bench, *files, "-lz",
                    "-lm", "-ldl", "-pthread"], check=True)
    return bench


def make_problems(folder):
    """Too many pairs of random costs to be proved by so few nodes."""
    draw = random.Random(8)
    for case in range(4):
        sizes = [draw.randint(3, 6) for _ in range(50)]
        pairs = [draw.sample(range(50), 2) for _ in range(200)]
        usages = [[draw.randrange(50) for _ in range(n)] for n in sizes]
        intervals = [sorted(draw.choices(range(90), k=2)) for _ in sizes]
        problem = {
            "nodes": {"intervals": intervals, "usages": usages, "costs": [
                [draw.randrange(100) for _ in range(n)] for n in sizes]},
            "edges": {"nodes": pairs, "costs": [
                [draw.randrange(200) for _ in range(sizes[a] * sizes[b])]
                for a, b in pairs]}}
        least = peak_of(problem, [row.index(min(row)) for row in usages])
        problem["usage_limit"] = least + 60 * (case + 1)
        path = os.path.join(folder, f"random-{case}.json")
        with open(path, "w") as file:
            json.dump({"problem": problem}, file)
        yield path, NODES


def solve(bench, path, folder, nodes, options):
    """Returns all that must be equal."""
    out = os.path.join(folder, "values.json")
    if os.path.exists(out):
        os.remove(out)
    done = run(bench, path, "--nodes", str(nodes), "--solution", out, *options)
    if done.returncode not in (0, 1):
        fail(f"{path}: exit status {done.returncode}: {done.stderr}")
    result = json.loads(done.stdout)
    del result["seconds"]
    return result, open(out).read() if done.returncode == 0 else None


def main():
    compilers = [name for name in ("gcc", "clang") if shutil.which(name)]
    levels = [(compilers[0], "-O1"), (compilers[-1], "-O3")]
    n_open = n_solved = 0
    with tempfile.TemporaryDirectory() as folder:
        benches = [build(*of, folder) for of in levels]
        problems = list(make_problems(folder))
        problems += [(path, int(nodes)) for path, nodes
                     in zip(sys.argv[1::2], sys.argv[2::2])]
        for path, nodes in problems:
            for part in ([], ["--without", "unpriced"]):
                first = None
                for bench in benches:
                    for threads in "1", "2", "4":
                        options = [*part, "--threads", threads]
                        got = solve(bench, path, folder, nodes, options)
                        first = first or got
                        if got != first:
                            fail(f"{path}: {os.path.basename(bench)} "
                                 f"{options}: {got[0]}, not {first[0]}")
                n_open += bool(part) and first[0]["outcome"] == "found"
                n_solved += 1
    if n_open < 2:
        fail(f"{n_open} problems are open after their nodes: threads had no work")
    print(f"{len(benches)} builds by {' and '.join(compilers)}, 3 numbers of "
          f"threads: {n_solved} results are equal, {n_open} of them open")


main()

"""Plans that tune and the search find, run against those of benchmarks/reality.

    python3 benchmarks/bench_tune.py real DNNC FOLDER [MODEL ...]
    python3 benchmarks/bench_tune.py paced DNNC FOLDER [MODEL:MBIT ...]
    tools/network.sh found FOLDER MBIT MODEL        one row of paced

`real` runs `dnnc tune MODEL` on two ranks of this machine, then its plan, data
parallelism and the plans of two ranks in reality/.  `paced` searches for a plan
of four ranks behind links of MBIT Mbit/s, with the kernels and links that were
measured, and runs it against the plans of four ranks: each rank has a network
namespace and sleeps instead of computing, so its steps are labelled paced.
Where namespaces are not allowed its rows say "skipped".

The plans run by turns, ROUNDS (5) times, and a step is the median over all of
them.  A row ends with the step of the found plan over that of the fastest other
one, and whether this is below the bar: 1.15, paced 1.08.  Exit status 1: a row
is above.  $BUDGET is that of a tune (150s).  Nothing else may run.
"""
import os
import shutil
import statistics
import subprocess
import sys

import reality

ROOT = reality.ROOT
ROUNDS = int(os.environ.get("ROUNDS", "5"))
BUDGET = os.environ.get("BUDGET", "150s")
REAL = ("vgg16", "chargpt")
PACED = ("chargpt:50", "chargpt:200", "chargpt:2000", "vgg16:500",
         "vgg16:2000")
BARS = {"real": 1.15, "paced": 1.08}
N_PACED = 4


def write_data_plan(folder, ranks):
    path = os.path.join(folder, f"data{ranks}.plan")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"mesh {{\n  data = {ranks}\n}}\n\nplan {{\n}}\n")
    return path


def plans_of(folder, kind, model, ranks, found):
    """Name and path, the found plan first."""
    plans = [("found", found), ("data parallelism",
                                write_data_plan(folder, ranks))]
    for of, name, plan in reality.PAIRS:
        path = reality.plan_path(of, name, plan)
        if (of, name) == (kind, model) and reality.ranks_of(path) == ranks:
            plans.append((plan, path))
    return plans


def run_by_turns(plans, run_steps):
    """The median step of each plan, in milliseconds; None: it failed."""
    steps = {name: [] for name, _ in plans}
    for _ in range(ROUNDS):
        for name, _ in plans:
            if steps[name] is None:
                continue
            lines = run_steps(name)
            if lines is None:
                steps[name] = None
            else:
                steps[name].append(statistics.median(reality.steps_of(lines)))
    return {name: statistics.median(times) if times else None
            for name, times in steps.items()}


def remove(bundles):
    for bundle in bundles.values():
        if bundle:
            shutil.rmtree(bundle, ignore_errors=True)


def report(title, kind, steps):
    """Prints a row for each plan; whether the found one is below the bar."""
    others = [ms for name, ms in steps.items() if name != "found" and ms]
    found = steps["found"]
    for name, ms in steps.items():
        if not ms:
            print(f"{title:24} {name:18} left out: it cannot be built or run")
            continue
        ratio = f"{ms / found:8.3f} of the found plan" if found else ""
        print(f"{title:24} {name:18} {ms:10.3f} ms {ratio}")
    if not found or not others:
        print(f"{title:24} FAULT: nothing to compare", flush=True)
        return False
    ratio, bar = found / min(others), BARS[kind]
    verdict = "below" if ratio <= bar else "ABOVE"
    print(f"{title:24} found / fastest other {ratio:6.3f}, {verdict} the bar "
          f"{bar:.2f}; found / data parallelism "
          + (f"{found / steps['data parallelism']:.3f}"
             if steps.get("data parallelism") else "none"), flush=True)
    return ratio <= bar


def try_run(words, **keys):
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT,
                          check=False, **keys)
    return done.stdout if done.returncode == 0 else None


# ---- on this machine ----

def real(dnnc, folder, model):
    name = os.path.join(folder, model)
    reality.run(["taskset", "-c", "0,1", dnnc, "tune",
                 *reality.model_words(model), "--budget", BUDGET, "-o", name])
    plans = plans_of(folder, "real", model, 2, name + ".plan")
    bundles = {}
    for i, (plan, path) in enumerate(plans):
        bundle = os.path.join(folder, f"{model}.{i}.bundle")
        built = try_run([dnnc, "build", *reality.model_words(model), "--plan",
                         path, "-o", bundle, "--quiet"])
        bundles[plan] = bundle if built is not None else None

    def run_steps(plan):
        if not bundles[plan]:
            return None
        return try_run([os.path.join(bundles[plan], "run"), "--steps", "5",
                        "--json", "--no-save"])
    steps = run_by_turns(plans, run_steps)
    remove(bundles)
    return report(f"real {model}", "real", steps)


# ---- in namespaces ----

def find_plan(dnnc, folder, model, mbit):
    """The search with the measured machine behind the measured links."""
    cluster = reality.network_cluster(folder, model, mbit, N_PACED)
    path = os.path.join(folder, f"{model}.{mbit}.found.plan")
    reality.run([dnnc, "plan", *reality.model_words(model), "--cluster",
                 cluster, "--profile", os.path.join(folder, model + ".profile"),
                 "--ranks", str(N_PACED), "--quiet", "-o", path])
    return cluster, path


def paced_row(dnnc, folder, mbit, model):
    """Is started by tools/network.sh."""
    cluster, found = find_plan(dnnc, folder, model, mbit)
    plans = plans_of(folder, "paced", model, N_PACED, found)
    profile = os.path.join(folder, model + ".profile")
    bundles = {}
    for i, (plan, path) in enumerate(plans):
        bundle = os.path.join(folder, f"{model}.{mbit}.{i}.bundle")
        built = try_run([dnnc, "run", *reality.model_words(model), "--plan",
                         path, "--paced", profile, "--cluster", cluster, "-o",
                         bundle, "--steps", "0", "--quiet"])
        bundles[plan] = bundle if built is not None else None

    def run_steps(plan):
        if not bundles[plan]:
            return None
        return reality.in_namespaces(bundles[plan], N_PACED, 5)
    steps = run_by_turns(plans, run_steps)
    remove(bundles)
    return report(f"paced {model} {int(mbit) / 1000:g} Gbit/s", "paced", steps)


def paced(dnnc, folder, row):
    model, mbit = row.split(":")
    name = os.path.join(folder, model)
    if not all(os.path.exists(name + end) for end in (".profile",
                                                      ".links.csv")):
        reality.run([dnnc, "tune", *reality.model_words(model), "--no-plans",
                     "--budget", BUDGET, "-o", name])
    done = subprocess.run([os.path.join(ROOT, "tools/network.sh"), "found",
                           folder, mbit, model], cwd=ROOT, check=False,
                          env=os.environ | {"DNNC": dnnc})
    if done.returncode == 77:
        print(f"paced {model} {int(mbit) / 1000:g} Gbit/s: skipped", flush=True)
    return done.returncode in (0, 77)


def main():
    kind, dnnc, folder, *rows = sys.argv[1:]
    dnnc, folder = os.path.abspath(dnnc), os.path.abspath(folder)
    os.makedirs(folder, exist_ok=True)
    if kind == "paced-row":
        sys.exit(not paced_row(dnnc, folder, *rows))
    actions = {"real": (real, REAL), "paced": (paced, PACED)}
    action, known = actions[kind]
    are_below = [action(dnnc, folder, row) for row in rows or known]
    sys.exit(not all(are_below))


main()

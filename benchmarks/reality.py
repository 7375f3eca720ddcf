"""Predicted steps of plans against measured ones, for the plans of reality/pairs.txt.

    python3 benchmarks/reality.py tune DNNC FOLDER [MODEL ...]
    python3 benchmarks/reality.py real DNNC FOLDER [MODEL ...]
    python3 benchmarks/reality.py curves DNNC FOLDER [MODEL ...]
    python3 benchmarks/reality.py predict DNNC FOLDER
    python3 benchmarks/reality.py paced DNNC FOLDER MBIT [MODEL ...]
    python3 benchmarks/reality.py stages DNNC FOLDER MBIT
    python3 benchmarks/reality.py report FOLDER

`tune` measures this machine for each model into FOLDER, with all plans of
pairs.txt held out.  `real` predicts the plans of one and two ranks from these
files, then runs them in rounds, one plan after the other; a run during which the
cores of a virtual machine were farther apart than while it was measured is
repeated.  `curves` does so for models that were not measured, from the kernels
of all others.  `predict` predicts the same steps again, from the same files,
after a change of the cost model.  `paced` predicts and runs two to eight ranks
that have a network namespace each and sleep instead of computing
(tools/network.sh starts it); the compute that is slept is the one that is
predicted, so it tests messages and overlap.  `stages` does so for pipelines of
two and four stages, whose kernels are those of a slow device, by formula, so
that steps take 0.3 s and more.  `report` prints errors, orders and the best
plans, and beside them a constant step per model, and operations over one rate.
Nothing else may run.
"""
import atexit
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUDGET = os.environ.get("BUDGET", "150s")
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SECONDS = float(os.environ.get("SECONDS_EACH", "4"))


def read_pairs():
    models, pairs = {}, []
    for line in open(os.path.join(HERE, "reality", "pairs.txt")):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "model":
            models[words[1]] = words[2:]
        else:
            pairs.append(tuple(words))
    return models, pairs


MODELS, PAIRS = read_pairs()


def models_of(kind):
    return [name for name in MODELS
            if any(pair[:2] == (kind, name) for pair in PAIRS)]


def plan_path(kind, model, plan):
    return os.path.join(HERE, "reality", model, f"{kind}_{plan}.plan")


def ranks_of(path):
    mesh = open(path).read().split("mesh {")[1].split("}")[0]
    ranks = 1
    for size in re.findall(r"=\s*(\d+)", mesh):
        ranks *= int(size)
    return ranks


def run(words, **keys):
    result = subprocess.run(words, capture_output=True, text=True, cwd=ROOT,
                            **keys)
    if result.returncode:
        sys.exit(f"{' '.join(words)}\n{result.stderr}")
    return result.stdout


def model_words(model):
    return MODELS[model]


def tune(dnnc, folder, chosen):
    for model in chosen:
        words = [dnnc, "tune", *model_words(model), "--no-plans", "--budget",
                 BUDGET, "-o", os.path.join(folder, model)]
        for kind, name, plan in PAIRS:
            if name == model:
                words += ["--hold-out", plan_path(kind, model, plan)]
        print(f"{model}: tune", flush=True)
        subprocess.run(words, cwd=ROOT, check=True)


def simulate(dnnc, model, path, *machine):
    return json.loads(run([dnnc, "simulate", *model_words(model), "--plan", path,
                           "--json", *machine]))


def flops_of(dnnc, model):
    return json.loads(run([dnnc, "check", *model_words(model), "--json"]))[
        "flops_step"]


def steps_of(lines):
    times = [json.loads(line)["ms"] for line in lines.splitlines()
             if line.startswith('{"step":') and '"ms":' in line]
    return times[2:] if len(times) > 3 else times[1:]


def count_steps(predicted, most=200):
    return max(3, min(most, int(SECONDS / predicted) + 3))


def save(folder, name, rows):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(rows, file, indent=1)


def run_bundle(bundle, steps, more):
    return run([os.path.join(bundle, "run"), "--steps", str(steps), "--json",
                "--no-save"], env=os.environ | more)


def core_distance():
    """Nanoseconds of a cache line from core to core and back."""
    program = os.path.join(tempfile.gettempdir(), f"core_distance.{os.getpid()}")
    if not os.path.exists(program):
        run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-D_GNU_SOURCE", "-I.",
             "-o", program, "benchmarks/core_distance.c", "tools/tune/core_distance.c",
             "-lpthread"])
        atexit.register(os.remove, program)
    return int(run([program]))


def tuned_distance(folder, names):
    """While the kernels of these models were measured; 0: unknown."""
    text = "".join(open(os.path.join(folder, name + ".cluster")).read()
                   for name in names)
    return max(map(int, re.findall(r"cache line took (\d+) ns", text)), default=0)


def run_near(distance, bundle, steps):
    """Repeats a run during which cores were farther apart than twice this, for
    two minutes at most."""
    until = time.monotonic() + 120
    while True:
        before = core_distance()
        out = run_bundle(bundle, steps, {})
        apart = max(before, core_distance())
        if not distance or apart <= 2 * distance:
            return out
        if time.monotonic() > until:
            print(f"{bundle}: cores are {apart} ns apart, {distance} when measured",
                  flush=True)
            return out
        while core_distance() > 2 * distance and time.monotonic() < until:
            time.sleep(0.5)


def machine_of(folder, kind, model, ranks):
    """The options that name what was measured of this machine."""
    if kind.startswith("paced"):
        return ["--cluster", network_cluster(folder, model, kind[5:], ranks),
                "--profile", os.path.join(folder, model + ".profile"),
                "--without", "interference"]
    if kind == "curves":
        return ["--cluster", os.path.join(folder, "others.cluster")]
    return ["--cluster", os.path.join(folder, model + ".cluster"),
            "--profile", os.path.join(folder, model + ".profile")]


def predicted(dnnc, folder, kind, model, plan):
    path = plan_path(kind.rstrip("0123456789"), model, plan)
    out = simulate(dnnc, model, path,
                   *machine_of(folder, kind, model, ranks_of(path)))
    return {"predicted_s": out["step_s"], "terms": out["terms"],
            "share": out.get("profile", {}).get("time_share", 0),
            "peak_bytes": out["ranks"][0]["peak_bytes"]}


def predict(dnnc, folder, chosen):
    for model in chosen:
        for kind in ("real", "curves", "paced200", "paced1000"):
            name = f"{model}.{kind}.json"
            if not os.path.exists(os.path.join(folder, name)):
                continue
            rows = json.load(open(os.path.join(folder, name)))
            for row in rows:
                row |= predicted(dnnc, folder, kind, model, row["plan"])
                print_row(row)
            save(folder, name, rows)


def measure(dnnc, folder, kind, model):
    """Predicts all plans before it runs one."""
    rows, bundles = [], {}
    for of, name, plan in PAIRS:
        if of != kind or name != model:
            continue
        path = plan_path(kind, model, plan)
        rows.append({"kind": kind, "model": model, "plan": plan,
                     "ranks": ranks_of(path), "flops": flops_of(dnnc, model)}
                    | predicted(dnnc, folder, kind, model, plan))
        bundles[plan] = os.path.join(folder, f"{model}.{plan}.bundle")
        run([dnnc, "build", *model_words(model), "--plan", path, "-o",
             bundles[plan], "--quiet"])
    save(folder, f"{model}.{kind}.predicted.json", rows)
    rounds = {row["plan"]: [] for row in rows}
    distance = tuned_distance(folder, [model] if kind == "real"
                              else models_of("real"))
    for _ in range(ROUNDS):
        for row in rows:
            out = run_near(distance, bundles[row["plan"]],
                           count_steps(row["predicted_s"]))
            rounds[row["plan"]].append(statistics.median(steps_of(out)))
    for row in rows:
        out = run_bundle(bundles[row["plan"]], 1, {"DNN_POISON": "1"})
        last = json.loads(out.splitlines()[-1])
        row["touched_bytes"] = max(last["arena_touched_bytes"])
        row["rounds_ms"] = rounds[row["plan"]]
        row["measured_s"] = statistics.median(rounds[row["plan"]]) * 1e-3
        print_row(row)
        shutil.rmtree(bundles[row["plan"]])
    save(folder, f"{model}.{kind}.json", rows)


def real(dnnc, folder, chosen):
    for model in chosen:
        measure(dnnc, folder, "real", model)


def curves(dnnc, folder, chosen):
    """The kernels of all models that were measured, the links of one."""
    tuned = models_of("real")
    lines = []
    for model in tuned:
        table = open(os.path.join(folder, model + ".kernels.csv")).readlines()
        lines += table[1:] if lines else table
    with open(os.path.join(folder, "others.kernels.csv"), "w") as file:
        file.writelines(lines)
    text = open(os.path.join(folder, tuned[0] + ".cluster")).read()
    with open(os.path.join(folder, "others.cluster"), "w") as file:
        file.write(text.replace(tuned[0] + ".kernels", "others.kernels"))
    for model in chosen:
        measure(dnnc, folder, "curves", model)


def print_row(row):
    error = row["predicted_s"] / row["measured_s"] - 1
    print(f"{row['kind']:5} {row['model']:8} {row['plan']:16} {row['ranks']} ranks "
          f"{row.get('mbit', ''):>5} {row['predicted_s'] * 1e3:10.2f} ms "
          f"{row['measured_s'] * 1e3:10.2f} ms {100 * error:+7.1f} %  profile "
          f"{100 * row['share']:.0f} %", flush=True)


# ---- paced ----

def network_cluster(folder, model, mbit, ranks):
    """The cluster of tune, with the collectives between namespaces, as tune has
    measured them in a job of so many ranks."""
    name = os.path.join(folder, f"{model}.{mbit}.{ranks}")
    job = os.path.join(folder, f"job{mbit}.{ranks}")
    network = re.search(r"level network \{[^}]*\}", open(job + ".cluster").read())
    text = open(os.path.join(folder, model + ".cluster")).read()
    text = re.sub(r"level node \{[^}]*\}",
                  "level node { count = 1; link = 8GB/s; latency = 1us }\n  "
                  + network.group(0), text)
    with open(name + ".cluster", "w") as file:
        file.write(text.replace(model + ".links", os.path.basename(name) + ".links"))
    lines = open(os.path.join(folder, model + ".links.csv")).readlines()
    lines += open(job + ".links.csv").readlines()[1:]
    with open(name + ".links.csv", "w") as file:
        file.writelines(lines)
    return name + ".cluster"


def in_namespaces(bundle, ranks, steps):
    from compare_ranks import inside
    command = os.environ["DNNC_NETWORK_MPIRUN"].split()
    for rank in range(ranks):
        command += [":"] if rank else []
        command += ["-n", "1", "-host", f"10.88.0.{rank + 1}",
                    f"{bundle}/rank-{rank:04d}", "--steps", str(steps),
                    "--json", "--no-save"]
    return run(inside(0, command))


def paced_step(dnnc, row, path, profile, cluster, bundle):
    """Seconds of a step in namespaces."""
    run([dnnc, "run", *model_words(row["model"]), "--plan", path, "--paced",
         profile, "--cluster", cluster, "-o", bundle, "--steps", "0", "--quiet"])
    lines = in_namespaces(bundle, row["ranks"],
                          count_steps(row["predicted_s"], 40))
    return statistics.median(steps_of(lines)) * 1e-3


# A link has what TCP leaves of its rate.
SLOW = """cluster slow {
  device = slow
  level node    { count = 1; link = 8GB/s; latency = 1us }
  level network { count = 4; link = %.3fMb/s; latency = 100us }
}
device slow { base = cpu; cores = 1; memory = 4GiB; flops_f32 = 6G; bandwidth = 2GB/s }
"""


def stages(dnnc, folder, mbit):
    """All steps are predicted before one runs."""
    rows = []
    profile = os.path.join(folder, "formulas.profile")
    cluster = os.path.join(folder, f"slow{mbit}.cluster")
    with open(profile, "w") as file:  # no launch has this kernel
        file.write("path,phase,kernel,cores,ps,runs\n"
                   "none,forward,0000000000000000,1,1,1\n")
    with open(cluster, "w") as file:
        file.write(SLOW % (0.95 * int(mbit)))
    for kind, model, plan in PAIRS:
        if kind != "stages":
            continue
        path = plan_path(kind, model, plan)
        out = simulate(dnnc, model, path, "--cluster", cluster, "--without",
                       "interference")
        rows.append({"kind": kind, "model": model, "plan": plan, "mbit": mbit,
                     "ranks": ranks_of(path), "flops": flops_of(dnnc, model),
                     "predicted_s": out["step_s"], "share": 0})
    for row in rows:
        path = plan_path("stages", row["model"], row["plan"])
        row["measured_s"] = paced_step(dnnc, row, path, profile, cluster,
                                       os.path.join(folder, "stages.bundle"))
        print_row(row)
    save(folder, f"staged.stages{mbit}.json", rows)


def paced(dnnc, folder, mbit, chosen):
    for model in chosen:
        rows = []
        profile = os.path.join(folder, model + ".profile")
        for kind, name, plan in PAIRS:
            path = plan_path(kind, model, plan) if kind == "paced" else None
            if kind != "paced" or name != model:
                continue
            if int(mbit) > 200 and ranks_of(path) > 4:
                continue
            row = {"kind": kind, "model": model, "plan": plan, "mbit": mbit,
                   "ranks": ranks_of(path), "flops": flops_of(dnnc, model)}
            row |= predicted(dnnc, folder, kind + mbit, model, plan)
            cluster = network_cluster(folder, model, mbit, ranks_of(path))
            bundle = os.path.join(folder, "paced.bundle")
            row["measured_s"] = paced_step(dnnc, row, path, profile, cluster, bundle)
            print_row(row)
            rows.append(row)
            save(folder, f"{model}.paced{mbit}.json", rows)


# ---- the report ----

def errors(rows, predicted):
    return [abs(predicted(row) / row["measured_s"] - 1) for row in rows]


def ordered(rows, predicted):
    right = total = 0
    for i, a in enumerate(rows):
        for b in rows[i + 1:]:
            if abs(a["measured_s"] / b["measured_s"] - 1) <= 0.03:
                continue
            total += 1
            right += ((predicted(a) < predicted(b))
                      == (a["measured_s"] < b["measured_s"]))
    return right, total


def report_group(title, rows):
    own = lambda row: row["predicted_s"]
    constant = statistics.geometric_mean(row["measured_s"] for row in rows)
    # Operations of a rank over one rate, which fits them best.
    rate = statistics.geometric_mean(row["flops"] / row["ranks"]
                                     / row["measured_s"] for row in rows)
    peers = [("", own), (", a constant", lambda row: constant),
             (", FLOPs over one rate",
              lambda row: row["flops"] / row["ranks"] / rate)]
    spread = (max(r["measured_s"] for r in rows)
              / min(r["measured_s"] for r in rows))
    for name, predicted in peers:
        off = errors(rows, predicted)
        right, total = ordered(rows, predicted)
        best = min(rows, key=predicted)
        loss = best["measured_s"] / min(r["measured_s"] for r in rows) - 1
        print(f"{title + name:44} mean {100 * statistics.mean(off):5.1f} %  "
              f"largest {100 * max(off):5.1f} %  order {right}/{total}  "
              f"chosen {100 * loss:4.1f} % behind the best  spread {spread:.2f}")


def report(folder):
    groups = {}
    for name in sorted(os.listdir(folder)):
        match = re.match(r"(\w+)\.(real|curves|(?:paced|stages)\d+)\.json$", name)
        if match:
            rows = json.load(open(os.path.join(folder, name)))
            for row in rows:
                print_row(row)
            groups[match.group(2), match.group(1)] = rows
    for (kind, model), rows in sorted(groups.items()):
        report_group(f"{kind} {model}", rows)
    for kind in ("real", "curves", "paced", "stages"):
        off = [e for key, rows in groups.items() if key[0].startswith(kind)
               for e in errors(rows, lambda row: row["predicted_s"])]
        if off:
            print(f"{kind}: mean error {100 * statistics.mean(off):.1f} %, "
                  f"largest {100 * max(off):.1f} % of {len(off)} steps")


def main():
    command, *words = sys.argv[1:]
    if command == "report":
        return report(words[0])
    dnnc, folder = os.path.abspath(words[0]), os.path.abspath(words[1])
    os.makedirs(folder, exist_ok=True)
    begin = time.time()
    if command == "paced":
        paced(dnnc, folder, words[2], words[3:] or models_of("paced"))
    elif command == "stages":
        stages(dnnc, folder, words[2])
    else:
        action, models = {"tune": (tune, models_of("real")),
                          "real": (real, models_of("real")),
                          "curves": (curves, models_of("curves")),
                          "predict": (predict, MODELS)}[command]
        action(dnnc, folder, words[2:] or list(models))
    print(f"{time.time() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

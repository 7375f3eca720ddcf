"""Predicted steps of plans with stages against paced ones, between namespaces.

    python3 benchmarks/staged_reality.py tune DNNC FOLDER
    python3 benchmarks/staged_reality.py predict DNNC FOLDER MBIT ... > FILE.csv
    tools/network.sh staged FOLDER FILE.csv MBIT [MODEL ...]
    python3 benchmarks/staged_reality.py report FOLDER FILE.csv

`tune` measures kernels of this machine for four models, without a plan with
stages.  `predict` prices the plans `staged` of reality/pairs.txt, all of them,
before one runs.  The models are wider than those of `tune`, so that a step takes
0.3 s and more, and their kernels are those of the curves; a link has 95 % of its
rate, which TCP leaves.  `staged` runs them: each rank has a
namespace and sleeps instead of computing, as long as was predicted.  It refuses
to run if the predictions are no longer those of FILE.csv.  `report` prints
errors of the predictions of FILE.csv, order and the best plans, and fails where a
bar is missed: mean error 8 %, largest 25 %, 90 % of the pairs in order that are
more than 5 % apart, the best prediction at most 5 % behind the best step.
"""
import csv
import json
import os
import re
import statistics
import sys

import reality

TUNED = {"mlp": "models/mlp.dnn B=256 H1=1024 H2=1024",
         "chargpt": "models/chargpt.dnn eval_batches=1",
         "charmoe": "models/charmoe.dnn eval_batches=1",
         "vgg16": "models/vgg16.dnn N=4 side=64 F=1024"}
# A link has what TCP leaves of its rate.
NETWORK = ("level network {{ count = 8; link = {:.3f}Mb/s; latency = 100us }}")
MEAN, LARGEST, APART, IN_ORDER, BEHIND = 0.08, 0.25, 0.05, 0.9, 0.05
ROUNDS = int(os.environ.get("ROUNDS", "3"))
NO_LAUNCH = ("path,phase,kernel,cores,ps,runs\n"
             "none,forward,0000000000000000,1,1,1\n")


def plans():
    return [(model, plan) for kind, model, plan in reality.PAIRS
            if kind == "staged"]


def ranks_of(path):
    text = open(path).read()
    last = [int(b or a) for a, b in re.findall(r" on (\d+)(?:\.\.(\d+))?", text)]
    return max(last) + 1 if last else reality.ranks_of(path)


def tune(dnnc, folder):
    for name, words in TUNED.items():
        print(f"{name}: tune", flush=True)
        reality.run([dnnc, "tune", *words.split(), "--no-plans", "--budget",
                     reality.BUDGET, "-o", os.path.join(folder, name)])


# ---- the machine ----

def join_kernels(folder):
    lines = []
    for name in TUNED:
        table = open(os.path.join(folder, name + ".kernels.csv")).readlines()
        lines += table[1:] if lines else table
    with open(os.path.join(folder, "staged.kernels.csv"), "w") as file:
        file.writelines(lines)


def write_machine(folder, mbit):
    """The device of tune, a rank for each machine of a network."""
    text = open(os.path.join(folder, "chargpt.cluster")).read()
    text = re.sub(r"level node \{[^}]*\}",
                  "level node { count = 1; link = 8GB/s; latency = 1us }\n  "
                  + NETWORK.format(0.95 * float(mbit)), text)
    text = re.sub(r"\n[^\n]*chargpt\.links[^\n]*", "", text)
    path = os.path.join(folder, f"staged{mbit}.cluster")
    with open(path, "w") as file:
        file.write(text.replace("chargpt.kernels", "staged.kernels"))
    return path


def write_profile(folder):
    path = os.path.join(folder, "none.profile")
    with open(path, "w") as file:
        file.write(NO_LAUNCH)
    return path


# ---- predictions ----

def predicted_rows(dnnc, folder, mbit):
    join_kernels(folder)
    cluster, rows = write_machine(folder, mbit), []
    for model, plan in plans():
        path = reality.plan_path("staged", model, plan)
        out = reality.simulate(dnnc, model, path, "--cluster", cluster,
                               "--without", "interference")
        rows.append({"model": model, "plan": plan, "ranks": ranks_of(path),
                     "mbit": mbit, "predicted_ms": f"{1e3 * out['step_s']:.3f}"})
    return rows


def predict(dnnc, folder, rates):
    rows = [row for mbit in rates for row in predicted_rows(dnnc, folder, mbit)]
    writer = csv.DictWriter(sys.stdout, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


# ---- steps ----

def staged(dnnc, folder, predictions, mbit, *models):
    promised = [row for row in csv.DictReader(open(predictions))
                if row["mbit"] == mbit]
    now = [{key: str(value) for key, value in row.items()}
           for row in predicted_rows(dnnc, folder, mbit)]
    if now != promised:
        sys.exit(f"{predictions} has other predictions: predict again, then "
                 "measure")
    profile, cluster = write_profile(folder), write_machine(folder, mbit)
    for model in models or dict(plans()):
        rows = []
        for row in promised:
            if row["model"] != model:
                continue
            row = {"kind": "staged", "model": model, "plan": row["plan"],
                   "mbit": mbit, "ranks": int(row["ranks"]), "share": 0,
                   "predicted_s": float(row["predicted_ms"]) * 1e-3}
            row["measured_s"] = reality.paced_step(
                dnnc, row, reality.plan_path("staged", model, row["plan"]),
                profile, cluster, os.path.join(folder, "staged.bundle"))
            reality.print_row(row)
            rows.append(row)
        reality.save(folder, f"{model}.staged{mbit}.json", rows)


# ---- the report ----

def in_order(rows):
    """Pairs in the right order, and all that are far enough apart."""
    pairs = [(a, b) for i, a in enumerate(rows) for b in rows[i + 1:]
             if max(a["measured_s"], b["measured_s"])
             > (1 + APART) * min(a["measured_s"], b["measured_s"])]
    right = [(a, b) for a, b in pairs
             if (a["predicted_s"] < b["predicted_s"])
             == (a["measured_s"] < b["measured_s"])]
    return len(right), len(pairs)


def errors(rows):
    return [abs(row["predicted_s"] / row["measured_s"] - 1) for row in rows]


def report(folder, predictions):
    right = total = 0
    off, is_best = [], True
    predicted = {(row["model"], row["plan"], row["mbit"]):
                 float(row["predicted_ms"]) * 1e-3
                 for row in csv.DictReader(open(predictions))}
    for name in sorted(os.listdir(folder)):
        if not re.match(r"\w+\.staged\d+\.json$", name):
            continue
        rows = json.load(open(os.path.join(folder, name)))
        for row in rows:
            row["predicted_s"] = predicted[row["model"], row["plan"], row["mbit"]]
            reality.print_row(row)
        pairs = in_order(rows)
        right, total = right + pairs[0], total + pairs[1]
        off += errors(rows)
        chosen = min(rows, key=lambda row: row["predicted_s"])["measured_s"]
        behind = chosen / min(row["measured_s"] for row in rows) - 1
        is_best &= behind <= BEHIND
        print(f"{name[:-5]}: mean error {100 * statistics.mean(errors(rows)):.1f} "
              f"%, largest {100 * max(errors(rows)):.1f} %, order {pairs[0]} of "
              f"{pairs[1]}, the chosen plan is {100 * behind:.1f} % behind the "
              "best")
    print(f"all: mean error {100 * statistics.mean(off):.1f} %, largest "
          f"{100 * max(off):.1f} % of {len(off)} steps, order {right} of {total}")
    is_good = (statistics.mean(off) <= MEAN and max(off) <= LARGEST
               and right >= IN_ORDER * total and is_best)
    sys.exit(0 if is_good else 1)


def main():
    command, *words = sys.argv[1:] or [""]
    actions = {"tune": tune, "staged": staged}
    if command == "report" and len(words) == 2:
        return report(*words)
    if len(words) < 2 or command not in ("predict", *actions):
        sys.exit(__doc__)
    dnnc, folder = os.path.abspath(words[0]), os.path.abspath(words[1])
    os.makedirs(folder, exist_ok=True)
    if command == "predict":
        return predict(dnnc, folder, words[2:])
    actions[command](dnnc, folder, *words[2:])


if __name__ == "__main__":
    main()

"""Stages or none: the kind of plan that a search chooses against the other kind.

    tools/network.sh kinds FOLDER MBIT [MODEL ...]

For four ranks behind links of MBIT Mbit/s, with kernels that staged_reality.py
has measured into FOLDER, `dnnc plan --search stages` finds a plan.  The best of
the other kind is that of a search without stages and data parallelism, or the
best of written pipelines (1f1b and zbh1, equal stages and PipeDream's replicas
before the linear layers, 2 to 8 micro-batches); the simulator chooses.  Both
run in turn, each rank in a namespace of its own, where it sleeps instead of
computing.  Exit status 1: the kind that was found is more than 5 % slower.
"""
import itertools
import os
import statistics
import sys

import reality
import staged_reality

RANKS, MOST_BEHIND = 4, 0.05
ROUNDS = int(os.environ.get("ROUNDS", "3"))
EFFORT = os.environ.get("EFFORT", "200")
DATA = ["mesh { data = 4 }\nplan { }\n", "mesh { data = 4 }\nplan { zero = 1 }\n"]
# The batch, cuts into two and into four, and stages with replicas.
PIPELINES = {
    "chargpt_wide": ("B", ["block[3]"], ["block[1]", "block[3]", "block[5]"], []),
    "vgg16_wide": ("N", ["unit[1]"], ["unit[0]", "unit[1]", "unit[2]"], [
        ["unit, adaptive_avgpool on 0..1 as (data = 2)",
         "linear[0] on 2", "linear[1..2] on 3"],
        ["unit[0..1] on 0..1 as (data = 2)",
         "unit[2..4], adaptive_avgpool on 2", "linear on 3"]])}


def plan_text(mesh, schedule, microbatches, lines):
    body = "".join(f"  {line}\n" for line in (
        f"schedule = {schedule}", f"microbatches = {microbatches}", *lines))
    return f"{mesh}plan {{\n{body}}}\n"


def written_pipelines(model):
    batch, two, four, replicas = PIPELINES[model]
    forms = [("mesh { pipe = 2; data = 2 }\n",
              [f"cut after {path}" for path in two] + [f"shard {batch} over data"]),
             ("mesh { pipe = 4 }\n", [f"cut after {path}" for path in four])]
    forms += [("", [f"stage {i}: {stage}" for i, stage in enumerate(stages)])
              for stages in replicas]
    return [plan_text(mesh, schedule, m, lines)
            for (mesh, lines), schedule, m in itertools.product(
                forms, ("1f1b", "zbh1"), (2, 4, 8))]


def write(path, text):
    with open(path, "w") as file:
        file.write(text)
    return path


def price(dnnc, model, cluster, path):
    return reality.simulate(dnnc, model, path, "--cluster", cluster, "--without",
                            "interference")["step_s"]


def search(dnnc, model, cluster, path, how):
    reality.run([dnnc, "plan", *reality.model_words(model), "--cluster", cluster,
                 "--ranks", str(RANKS), "--search", how, "--effort", EFFORT,
                 "--quiet", "-o", path])
    return path


def has_stages(path):
    text = open(path).read()
    return "cut after" in text or "\n  stage " in text


def best_of(dnnc, model, cluster, paths):
    return min((price(dnnc, model, cluster, path), path) for path in paths)


def other_kind(dnnc, folder, model, cluster, found):
    texts = DATA if has_stages(found) else written_pipelines(model)
    paths = [write(os.path.join(folder, f"{model}.other{i}.plan"), text)
             for i, text in enumerate(texts)]
    if has_stages(found):
        paths.append(search(dnnc, model, cluster, os.path.join(
            folder, f"{model}.flat.plan"), "elimination"))
    return best_of(dnnc, model, cluster, paths)


def measure(dnnc, folder, model, cluster, plans):
    """The median of all rounds, in seconds."""
    profile = staged_reality.write_profile(folder)
    steps = {name: [] for name in plans}
    for _ in range(ROUNDS):
        for name, (predicted, path) in plans.items():
            row = {"model": model, "ranks": RANKS, "predicted_s": predicted}
            steps[name].append(reality.paced_step(
                dnnc, row, path, profile, cluster,
                os.path.join(folder, "kinds.bundle")))
    return {name: statistics.median(times) for name, times in steps.items()}


def row(dnnc, folder, mbit, model):
    cluster = staged_reality.write_machine(folder, mbit)
    found = search(dnnc, model, cluster, os.path.join(
        folder, f"{model}.{mbit}.found.plan"), "stages")
    plans = {"found": (price(dnnc, model, cluster, found), found),
             "other": other_kind(dnnc, folder, model, cluster, found)}
    seconds = measure(dnnc, folder, model, cluster, plans)
    behind = seconds["found"] / seconds["other"] - 1
    kinds = ("stages", "none") if has_stages(found) else ("none", "stages")
    print(f"{model:13} {float(mbit) / 1e3:6g} Gbit/s  found: {kinds[0]:6} "
          f"{1e3 * plans['found'][0]:9.1f} ms predicted "
          f"{1e3 * seconds['found']:9.1f} ms  other: {kinds[1]:6} "
          f"{1e3 * plans['other'][0]:9.1f} ms predicted "
          f"{1e3 * seconds['other']:9.1f} ms  {100 * behind:+6.1f} %"
          f"{'' if behind <= MOST_BEHIND else '  SLOWER'}", flush=True)
    return behind <= MOST_BEHIND


def main():
    dnnc, folder, mbit, *models = sys.argv[1:]
    dnnc, folder = os.path.abspath(dnnc), os.path.abspath(folder)
    staged_reality.join_kernels(folder)
    are_fast = [row(dnnc, folder, mbit, model) for model in models or PIPELINES]
    sys.exit(0 if all(are_fast) else 1)


if len(sys.argv) < 4:
    sys.exit(__doc__)
main()

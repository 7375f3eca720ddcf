"""stage_plans.py DNNC COUNT [SEED]: prices random plans with stages of the models of benchmarks/systems/pairs.txt.

A plan has random cuts, lines `stage` or lines `place`, a random mesh, schedule and number of micro-batches, and some have lines about
ZeRO, shards and rematerialisation.  `dnnc simulate` must give a price, or refuse the plan with a message that has a place;
a circle of messages and a fault of dnnc are failures.  The same count and seed give the same plans.  Plans that fail are
left in the current folder.
"""

import collections
import os
import random
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read_models():
    with open(os.path.join(ROOT, "benchmarks/systems/pairs.txt"), encoding="utf-8") as file:
        rows = [line.split() for line in file if line.startswith("model ")]
    return [(os.path.join(ROOT, row[2]), row[3:]) for row in rows]


def read_graph(dnnc, model):
    """Returns the paths of operators, in order, and the names of dims."""
    run = subprocess.run([dnnc, "ir", model[0], *model[1]], capture_output=True, text=True, timeout=120, check=True)
    lines = [line for line in run.stdout.splitlines() if " = input " not in line and " = const " not in line]
    paths = [found.group(1) for found in (re.search(r'"([^"]+)"$', line) for line in lines) if found]
    dims = sorted(set(re.findall(r"[\[ ]([A-Z][A-Za-z0-9]*):\d", run.stdout)))
    return list(dict.fromkeys(paths)), dims


def begin_of(rng, path):
    """Returns a layer that has the path, or the path."""
    parts = path.split(".")
    name = ".".join(parts[: rng.randint(1, len(parts))])
    return re.sub(r"\[\d+\]", "", name) if rng.random() < 0.15 else name


def is_apart(name, others):
    return all(not name.startswith(other) and not other.startswith(name) for other in others)


def cut_lines(rng, paths, n_cuts):
    names = []
    for at in sorted(rng.sample(range(len(paths)), min(n_cuts, len(paths)))):
        name = begin_of(rng, paths[at])
        if is_apart(name, names):
            names.append(name)
    return [f'cut after "{name}"' for name in names]


def mesh_of_stage(rng):
    """Returns the axes of the mesh of a stage and its ranks."""
    axes, n_ranks = [], 1
    for name in rng.sample(["data", "tensor"], rng.choice([0, 1, 1, 2])):
        size = rng.choice([1, 2, 2, 3, 4])
        axes.append(f"{name} = {size}")
        n_ranks *= size
    return ", ".join(axes), n_ranks


def stage_lines(rng, paths, n_cuts, n_ranks, has_meshes):
    """Returns lines `stage`, some on the same ranks, some in another order of ranks, or with meshes of their own."""
    ends = [0, *sorted(rng.sample(range(1, len(paths)), min(n_cuts, len(paths) - 1))), len(paths)]
    groups = list(range(len(ends) - 1))
    if rng.random() < 0.4:
        groups = [rng.choice(groups) for _ in groups]
    if rng.random() < 0.2:
        rng.shuffle(groups)
    if rng.random() < 0.9:
        groups = [sorted(set(groups)).index(group) for group in groups]
    lines, taken = [], set()
    meshes = [mesh_of_stage(rng) for _ in groups]
    for stage, group in enumerate(groups):
        part = paths[ends[stage] : ends[stage + 1]]
        names = [begin_of(rng, path) for path in rng.sample(part, min(len(part), rng.choice([1, 2, 3, 8])))]
        names = [name for name in dict.fromkeys(names) if is_apart(name, taken)] or [part[0]]
        taken.update(names)
        n = meshes[group][1] if has_meshes else n_ranks
        first = sum(mesh[1] for mesh in meshes[:group]) if has_meshes else group * n_ranks
        ranks = f"{first}" if n == 1 else f"{first}..{first + n - 1}"
        own = f" as ({meshes[group][0]})" if has_meshes else ""
        lines.append(f"stage {stage}: " + ", ".join(f'"{name}"' for name in names) + f" on {ranks}{own}")
    return lines


def place_lines(rng, paths, n_lines, n_ranks):
    """Returns lines `place`, some on the same ranks and some on those of the rest."""
    lines, taken = [], set()
    for _ in range(n_lines):
        names = [begin_of(rng, path) for path in rng.sample(paths, min(len(paths), rng.choice([1, 1, 2, 5])))]
        names = [name for name in dict.fromkeys(names) if is_apart(name, taken)]
        taken.update(names)
        first = rng.choice([0, 1, 1, 1, 2, 2, 3]) * n_ranks
        ranks = f"{first}" if n_ranks == 1 else f"{first}..{first + n_ranks - 1}"
        if names:
            lines.append("place " + ", ".join(f'"{name}"' for name in names) + f" on {ranks}")
    return lines


def make_plan(rng, paths, dims):
    n_cuts = rng.choice([1, 1, 2, 2, 3, 4, 6])
    data = rng.choice([2, 2, 3, 4]) if rng.random() < 0.4 else 1
    tensor = 2 if rng.random() < 0.3 else 1
    lines = [f"microbatches = {rng.choice([1, 1, 2, 2, 2, 4, 4, 3, 8])}"]
    if rng.random() < 0.9:
        lines.append("schedule = " + rng.choice(["1f1b", "fthenb", "naive", "gpipe"]))
    if rng.random() < 0.3:
        lines.append(f"zero = {rng.randint(0, 3)}")
    if tensor > 1 and dims and rng.random() < 0.8:
        lines.append("shard " + ", ".join(rng.sample(dims, min(len(dims), rng.choice([1, 1, 2])))) + " over tensor")
    if rng.random() < 0.15:
        lines.append(rng.choice(["remat", "keep"]) + f' "{begin_of(rng, rng.choice(paths))}"')
    axes = [f"{name} = {size}" for name, size in (("data", data), ("tensor", tensor)) if size > 1]
    kind = rng.random()
    if kind < 0.25:
        lines += place_lines(rng, paths, n_cuts, data * tensor)
    elif kind < 0.75:
        cuts = cut_lines(rng, paths, n_cuts)
        axes.append(f"pipe = {len(cuts) + 1}")
        lines += cuts
    else:
        lines += stage_lines(rng, paths, n_cuts, data * tensor, rng.random() < 0.4)
    return f"mesh {{ {'; '.join(axes)} }}\nplan {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def price(dnnc, model, plan, cluster):
    """Returns the exit code, the message, and whether a plan may end like that."""
    command = [dnnc, "simulate", model[0], *model[1], "--plan", plan, "--cluster", cluster]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return -1, "no end in 120 s", False
    message = re.search(r"^[^\n:]+:\d+:\d+: error: (.*)", run.stderr, re.M)
    is_refused = run.returncode == 1 and message and "may hang" not in run.stderr
    return run.returncode, message.group(1) if message else run.stderr, run.returncode == 0 or bool(is_refused)


def main():
    dnnc, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    with open(os.path.join(ROOT, "models/laptop.cluster"), encoding="utf-8") as file, open(
        "many.cluster", "w", encoding="utf-8"
    ) as many:
        many.write(file.read().replace("count = 2", "count = 64"))
    clusters = ["many.cluster", os.path.join(ROOT, "models/a100x1024.cluster")]
    models, graphs, ends, n_wrong = read_models(), {}, collections.Counter(), 0
    for number in range(count):
        rng = random.Random(seed * 1000003 + number)
        at = rng.randrange(len(models))
        if at not in graphs:
            graphs[at] = read_graph(dnnc, models[at])
        plan = f"stages-{seed}-{number}.plan"
        with open(plan, "w", encoding="utf-8") as file:
            file.write(make_plan(rng, *graphs[at]))
        code, message, is_right = price(dnnc, models[at], plan, rng.choice(clusters))
        ends["a price" if code == 0 else re.sub(r"'[^']*'|\d+", "_", message)[:100]] += 1
        if is_right:
            os.remove(plan)
            continue
        n_wrong += 1
        print(f"WRONG {plan}, {' '.join([os.path.basename(models[at][0]), *models[at][1]])}: exit {code}\n{message}")
    for end, n in ends.most_common():
        print(f"{n:5} {end}")
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    main()

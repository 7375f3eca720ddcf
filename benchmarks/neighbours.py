"""Plans that one changed line makes of a plan with stages, and which of them are faster.

    python3 benchmarks/neighbours.py DNNC MODEL [NAME=VALUE ...] --plan PLAN --cluster FILE [--ranks N]
                                     [--most N] [--state FILE] [--seed S] [--json]

A change moves one cut by one piece, takes another schedule, twice or half the micro-batches, another level of ZeRO, all
blocks computed again or none, another order of the axes of the mesh, or moves a factor of two from one axis to another; it
leaves out a line about shards, or puts one axis of it on another dim or on none; twice or half a bucket or prefetch.
Where two lines must change together, as the cuts with the number of stages, the change is none of these.  `dnnc simulate`
prices each; N of them (300) by seed where there are more.  It prints those that fit and are faster by more than 1 %, and
the best of the others.

--state FILE keeps a line for each plan, and a later run goes on after its last one.
Exit status 1: a neighbour is faster by more than 1 %; 2: the plan itself has no price.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

SCHEDULES = ["naive", "fthenb", "gpipe", "1f1b", "zbh1", "zbh2"]
CHUNKED = ["interleaved", "bfs", "zb1p"]
VEES = ["zbv", "vhalf", "vmin", "dualpipev"]
MOST_FASTER = 0.01


# ---- the model ----


def borders_of(dnnc, model, sizes):
    """Returns, for each node in order of the forward graph, its path and whether it alone is read on behind it."""
    text = subprocess.run([dnnc, "ir", model, *sizes], capture_output=True, text=True, check=True).stdout
    nodes, number = [], {}
    for line in text.split("graph train {", 1)[1].splitlines():
        found = re.match(r"  (%\d+)(?::\d+)? = (\w+) ([^{:]*)", line)
        if line.startswith("}"):
            break
        if not found:
            continue
        path = re.search(r'"([^"]*)"$', line)
        is_param = found.group(2) == "input" and re.search(r"\] (param|state) ", line) is not None
        is_tensor = re.search(r"\[[A-Za-z]", line.split("} :")[-1].split(" : ")[-1]) is not None
        inputs = [number[name] for name in re.findall(r"%\d+", found.group(3)) if name in number]
        number[found.group(1)] = len(nodes)
        nodes.append(
            {
                "op": found.group(2),
                "path": path.group(1) if path else "",
                "inputs": inputs,
                "trained": is_param or any(nodes[i]["trained"] for i in inputs),
                "tensor": is_tensor,
            }
        )
    last = [-1] * len(nodes)
    for at, node in enumerate(nodes):
        for i in node["inputs"]:
            last[i] = at
    alive, borders = set(), []
    for at, node in enumerate(nodes):
        alive = {i for i in alive if last[i] > at}
        if node["op"] != "input" and node["trained"] and node["tensor"] and last[at] > at:
            alive.add(at)
            if alive == {at} and node["path"] and node["op"] != "rename":
                borders.append(at)
    return nodes, borders


def node_of(nodes, text):
    """Returns the last node that `cut after` finds for a path, or None."""
    found = [
        at
        for at, node in enumerate(nodes)
        if node["op"] != "input"
        and (node["path"] == text or (node["path"].startswith(text) and node["path"][len(text)] in ".[!"))
    ]
    return found[-1] if found else None


def is_last_of_path(nodes, at):
    return node_of(nodes, nodes[at]["path"]) == at


# ---- changes of a text: each yields what it changes, and the new text ----


def cut_changes(text, nodes, borders):
    """Moves each cut to the border before and after."""
    cuts = re.findall(r"^  cut after (.*)$", text, re.M)
    places = [node_of(nodes, cut.strip('"')) for cut in cuts]
    usable = [at for at in borders if is_last_of_path(nodes, at)]
    for i, cut in enumerate(cuts):
        if places[i] is None:
            continue
        before = [at for at in usable if at < places[i] and (i == 0 or at > places[i - 1])]
        after = [at for at in usable if at > places[i] and (i + 1 == len(cuts) or at < places[i + 1])]
        for at in before[-1:] + after[:1]:
            path = nodes[at]["path"]
            yield f"cut {cut} -> {path}", text.replace(f"  cut after {cut}\n", f'  cut after "{path}"\n', 1)


def setting(text, name):
    found = re.search(rf"^  {name} += (.*)$", text, re.M)
    return found.group(1).strip() if found else None


def changed(text, name, value):
    if setting(text, name) is None:
        return re.sub(r"^(plan[^\n]*\{\n)", rf"\g<1>  {name} = {value}\n", text, count=1, flags=re.M)
    return re.sub(rf"^  {name} += .*$", f"  {name} = {value}", text, count=1, flags=re.M)


def axes_of(text):
    block = re.search(r"^mesh \{(.*?)\}", text, re.M | re.S)
    return [(name, int(size)) for name, size in re.findall(r"(\w+) = (\d+)", block.group(1))] if block else []


def with_axes(text, axes):
    block = "mesh { " + "; ".join(f"{name} = {size}" for name, size in axes) + " }"
    return re.sub(r"^mesh \{.*?\}", block, text, count=1, flags=re.M | re.S)


def schedule_changes(text):
    """Takes each schedule that has as many stages on each group of ranks."""
    groups = dict(axes_of(text)).get("pipe", 0)
    stages = len(re.findall(r"^  cut after ", text, re.M)) + 1
    if groups == 0 or stages % groups != 0:
        return
    chunks = stages // groups
    names = list(SCHEDULES) if chunks == 1 else [f"{name}(v = {chunks})" for name in CHUNKED]
    if chunks == 2:
        names += VEES
    for name in names:
        if name != setting(text, "schedule"):
            yield f"schedule {name}", changed(text, "schedule", name)


def setting_changes(text):
    m = int(setting(text, "microbatches") or 1)
    for other in (2 * m, m // 2 if m % 2 == 0 else 0, m + 1, m - 1):
        if other > 0:
            yield f"microbatches {other}", changed(text, "microbatches", other)
    zero = (setting(text, "zero") or "0").split()[0]
    for level in "0123":
        if level != zero:
            yield f"zero {level}", changed(text, "zero", level)


def remat_changes(text, nodes):
    lines = re.findall(r"^  remat .*\n", text, re.M)
    for line in lines:
        yield f"without {line.strip()}", text.replace(line, "", 1)
    layers = {re.match(r"\w+", node["path"]).group(0) for node in nodes if re.match(r"\w+[\[.]", node["path"])}
    for layer in sorted(layers - {"loss"}):
        line = f"  remat {layer}\n"
        if line not in lines:
            yield f"remat {layer}", re.sub(r"\n\}", "\n" + line + "}", text, count=1) if "mesh {" not in text else (
                re.sub(r"(^plan[^\n]*\{\n)", rf"\g<1>{line}", text, count=1, flags=re.M)
            )


def mesh_changes(text):
    axes = axes_of(text)
    for i in range(len(axes)):
        for k in range(len(axes)):
            if i < k and axes[i][0] != "pipe" and axes[k][0] != "pipe":
                other = list(axes)
                other[i], other[k] = axes[k], axes[i]
                yield f"mesh order {axes[k][0]}, {axes[i][0]}", with_axes(text, other)
            if i != k and axes[i][1] % 2 == 0 and "pipe" not in (axes[i][0], axes[k][0]):
                other = list(axes)
                other[i] = (axes[i][0], axes[i][1] // 2)
                other[k] = (axes[k][0], axes[k][1] * 2)
                yield f"mesh {other[i][0]} {other[i][1]}, {other[k][0]} {other[k][1]}", with_axes(text, other)


def shards_of(spec):
    """Returns "N over (a, b), C over c" as {"N": ["a", "b"], "C": ["c"]}."""
    found = re.findall(r"(\w+) over (\([^)]*\)|\w+)", spec)
    return {dim: [axis for axis in re.findall(r"\w+", axes) if axis != "none"] for dim, axes in found}


def shards_text(shards):
    words = []
    for dim, axes in shards.items():
        if axes:
            words.append(f"{dim} over {axes[0]}" if len(axes) == 1 else f"{dim} over ({', '.join(axes)})")
    return ", ".join(words)


def shard_changes(text):
    """Leaves out each line about shards, or puts an axis of it elsewhere: on each dim of any line, or on none."""
    lines = re.findall(r"^  (?:shard|replicate) [^\n]*\n", text, re.M)
    specs = [re.sub(r"\s*#.*", "", line.strip()) for line in lines]
    specs = [re.sub(r"^replicate (.*)", r"\1: none", spec).removeprefix("shard ") for spec in specs]
    dims = list(dict.fromkeys(dim for spec in specs for dim in shards_of(spec)))
    for line, spec in zip(lines, specs):
        yield f"without {line.strip()}", text.replace(line, "", 1)
        about, _, own = spec.rpartition(": ")
        for axis, _ in axes_of(text):
            rest = {dim: [a for a in axes if a != axis] for dim, axes in shards_of(own).items()}
            for dim in [None] + dims:
                other = {**rest, dim: rest.get(dim, []) + [axis]} if dim else rest
                words = shards_text(other)
                if not words and not about:
                    continue  # a line about names has a name
                new = f"  shard {about}: {words or 'none'}\n" if about else f"  shard {words}\n"
                yield f"{new.strip()} for {spec}", text.replace(line, new, 1)


def size_changes(text):
    for name in ("bucket", "prefetch"):
        found = re.match(r"(\d+)(\w+)$", setting(text, name) or "")
        for value in (2 * int(found.group(1)), int(found.group(1)) // 2) if found else ():
            yield f"{name} {value}{found.group(2)}", changed(text, name, f"{value}{found.group(2)}")


def neighbours(text, nodes, borders):
    text = re.sub(r"^certificate \{.*?^\}\n?", "", text, flags=re.M | re.S)
    out = {}
    for changes in (
        cut_changes(text, nodes, borders),
        schedule_changes(text),
        setting_changes(text),
        remat_changes(text, nodes),
        mesh_changes(text),
        shard_changes(text),
        size_changes(text),
    ):
        for what, other in changes:
            if other != text and other not in out.values():
                out.setdefault(what, other)
    return out


# ---- prices ----


def price(options, text):
    """Returns the step, or None where the compiler refuses the plan or it does not fit."""
    with tempfile.NamedTemporaryFile("w", suffix=".plan", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        words = [options.dnnc, "simulate", options.model, *options.sizes, "--plan", file.name]
        words += ["--cluster", options.cluster, "--json"]
        words += ["--ranks", str(options.ranks)] if options.ranks else []
        run = subprocess.run(words, capture_output=True, text=True, check=False)
    if not run.stdout.startswith("{"):
        return None
    found = json.loads(run.stdout)
    return found["step_s"] if found["fits"] else None


def read_state(path):
    if not path or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return {what: None if step == "-" else float(step) for step, what in (line.rstrip("\n").split(" ", 1) for line in file)}


def price_all(options, plans):
    prices = read_state(options.state)
    for what, text in plans:
        if what in prices:
            continue
        prices[what] = price(options, text)
        if options.state:
            with open(options.state, "a", encoding="utf-8") as file:
                file.write(f"{'-' if prices[what] is None else repr(prices[what])} {what}\n")
    return {what: prices[what] for what, _ in plans}


def read_options():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=True)
    parser.add_argument("dnnc")
    parser.add_argument("model")
    parser.add_argument("sizes", nargs="*")
    parser.add_argument("--plan", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--most", type=int, default=300)
    parser.add_argument("--state")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_intermixed_args()


def main():
    options = read_options()
    with open(options.plan, encoding="utf-8") as file:
        text = file.read()
    nodes, borders = borders_of(options.dnnc, options.model, options.sizes)
    plans = list(neighbours(text, nodes, borders).items())
    n_all = len(plans)
    if n_all > options.most:
        plans = random.Random(options.seed).sample(plans, options.most)
    own = price(options, text)
    if own is None:
        print("the plan has no price, or does not fit", file=sys.stderr)
        sys.exit(2)
    prices = price_all(options, plans)
    known = sorted((step / own - 1, what) for what, step in prices.items() if step is not None)
    faster = [(by, what) for by, what in known if by < -MOST_FASTER]
    if options.json:
        print(json.dumps({"step_s": own, "neighbours": n_all, "priced": len(plans), "fit": len(known),
                          "faster": [{"change": what, "by": -by} for by, what in faster],
                          "best": -known[0][0] if known else None}))
    else:
        print(f"{own * 1e3:.6f} ms; {n_all} neighbours, {len(plans)} priced, {len(known)} fit, "
              f"{len(faster)} faster by more than {100 * MOST_FASTER:g} %")
        for by, what in faster or known[:1]:
            print(f"  {100 * by:+.2f} % {what}")
    sys.exit(len(faster) > 0)


main()

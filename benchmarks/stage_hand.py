"""Compares hand-written plans with stages with what `dnnc plan` finds from a part of their lines.

    stage_hand.py DNNC [WORD] [--cluster FILE] [--effort N]

For each plan of plans/ with stages, of the pairs of systems/pairs.txt whose name has WORD: the step by
`dnnc simulate`, and that of the plan that is found with its mesh alone, and with its schedule alone, on as
many ranks.  Exits with 1 if a plan that is found is slower.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def pairs():
    """Returns the models by name, and pairs of a plan and a model."""
    models, out = {}, []
    for line in open(os.path.join(ROOT, "benchmarks/systems/pairs.txt")):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "model":
            models[words[1]] = words[2:]
        else:
            out.append((words[2], words[3], words[4:]))
    return models, out


def step_of(text):
    return float(re.findall(r'"step_s":([-+.\de]+)', text)[-1])


def price(dnnc, model, plan, cluster):
    """Returns the step and the number of ranks."""
    ran = subprocess.run([dnnc, "simulate", *model, "--plan", plan, "--cluster", cluster, "--json"],
                         capture_output=True, text=True)
    if ran.returncode:
        return None, 0
    return step_of(ran.stdout), sum(int(n) for n in re.findall(r'"ranks":(\d+)', ran.stdout))


def find(dnnc, model, lines, ranks, cluster, effort, folder):
    path = os.path.join(folder, "pins.plan")
    with open(path, "w") as file:
        file.write(lines)
    ran = subprocess.run([dnnc, "plan", *model, "--plan", path, "--cluster", cluster, "--ranks", str(ranks),
                          *effort, "--quiet", "--json"], capture_output=True, text=True)
    if ran.returncode:
        return None, ran.stderr.strip().split("\n")[0]
    return step_of(ran.stdout), re.findall(r'"words":"([^"]*)"', ran.stdout)[0]


def parts_of(text):
    """Returns the pins of a plan: what each is, and its lines."""
    text = re.sub(r"#.*", "", text)
    mesh = re.search(r"mesh\s*\{[^}]*\}", text)
    schedule = re.search(r"schedule\s*=\s*([^\n;}]*)", text)
    out = []
    if mesh and "pipe" in mesh.group(0):
        out.append(("mesh", mesh.group(0) + "\n"))
    if schedule and '"' not in schedule.group(1):
        out.append(("schedule", f"plan {{ schedule = {schedule.group(1).strip()} }}\n"))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dnnc")
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--cluster", default=os.path.join(ROOT, "models/pipedream-a.cluster"))
    parser.add_argument("--effort")
    of = parser.parse_args()
    effort = ["--effort", of.effort] if of.effort else []
    models, all_pairs = pairs()
    bad = n = 0
    print(f"{'plan':28} {'model':10} {'ranks':>5} {'by hand':>11}  {'pin':8} {'found':>11} {'over':>8}  what was found")
    with tempfile.TemporaryDirectory() as folder:
        for plan, name, words in all_pairs:
            path = os.path.join(ROOT, "benchmarks/plans", plan + ".plan")
            text = open(path).read()
            if not re.search(of.word, plan) or not re.search(r"^\s*(cut after|stage \d)", text, re.M):
                continue
            file, *sizes = models[name]
            model = [os.path.join(ROOT, file), *sizes, *words]
            by_hand, ranks = price(of.dnnc, model, path, of.cluster)
            if by_hand is None:
                print(f"{plan:28} {name:10} cannot be priced on this cluster")
                continue
            if ranks == 1:
                print(f"{plan:28} {name:10} has all stages on one rank, which is not searched")
                continue
            for what, lines in parts_of(text):
                found, said = find(of.dnnc, model, lines, ranks, of.cluster, effort, folder)
                is_slower = found is None or found > by_hand * (1 + 1e-9)
                bad += is_slower
                n += 1
                took = "-" if found is None else f"{found * 1e3:8.4f} ms"
                over = "-" if found is None else f"{100 * (found / by_hand - 1):+7.1f}%"
                print(f"{plan:28} {name:10} {ranks:5} {by_hand * 1e3:8.4f} ms  {what:8} {took:>11} {over:>8}"
                      f"  {said}{'  SLOWER' if is_slower else ''}", flush=True)
    print(f"{n} searches, {bad} slower than by hand")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main() else 0)

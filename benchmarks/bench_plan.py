"""Plans that `dnnc plan` finds, against data parallelism and ZeRO.

    python3 benchmarks/bench_plan.py DNNC [ROW ...]

A row is a model on some ranks of a cluster; without names all are run.  Each
line has the plan in words, its step, that of the best opponent, and processor
and wall time of the search.  Opponents are data parallelism and ZeRO 1 to 3
with every power of two of micro-batches, priced by `dnnc simulate`.

Exit status 1: nothing was found, `simulate` gives the printed plan another
step, it does not fit, or an opponent that fits is faster.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LLAMA70 = ["C=8192", "F=28672", "L=80", "H=8"]
CNN = ("vgg16", "alexnet", "resnet50", "vit", "bert")
MOST_MICROBATCHES = 1024

ROWS = {}
for n in (64, 256, 1024):
    ROWS[f"gpt3-{n}"] = ("gpt3", [], "a100x1024", n)
for n in (8, 64):
    ROWS[f"llama-{n}"] = ("llama", [], "h100x256", n)
for n in (32, 256):
    ROWS[f"llama70b-{n}"] = ("llama", LLAMA70, "h100x256", n)
ROWS["moe-64"] = ("moe", [], "h100x256", 64)
for name in CNN:
    for cluster, n in (("pipedream-a", 16), ("pipedream-b", 16),
                       ("h100x256", 8)):
        ROWS[f"{name}-{cluster}"] = (name, [], cluster, n)
ROWS["vgg16-mixed"] = ("vgg16", [], "mixed", None)


def command(dnnc, verb, row, *options):
    model, sizes, cluster, ranks = row
    words = [dnnc, verb, os.path.join(ROOT, f"models/{model}.dnn"), *sizes,
             "--cluster", os.path.join(ROOT, f"models/{cluster}.cluster")]
    if ranks and verb == "plan":
        words += ["--ranks", str(ranks)]
    return words + list(options)


def run(words):
    begin = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime -
           before.ru_stime)
    return done, cpu, time.monotonic() - begin


def opponents(ranks, folder):
    paths = []
    for zero in range(4):
        microbatches = 1
        while microbatches <= MOST_MICROBATCHES:
            path = os.path.join(folder, f"zero{zero}-{microbatches}.plan")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"mesh {{\n  data = {ranks}\n}}\n\nplan {{\n  zero = "
                           f"{zero}\n  microbatches = {microbatches}\n}}\n")
            paths.append(path)
            microbatches *= 2
    return paths


def best_opponent(dnnc, row, ranks, folder):
    """The fastest that fits: its step and name, or None."""
    best = None
    for path in opponents(ranks, folder):
        done, _, _ = run(command(dnnc, "simulate", row, "--plan", path,
                                 "--json"))
        if done.returncode != 0:
            continue
        price = json.loads(done.stdout)
        if price["fits"] and (best is None or price["step_s"] < best[0]):
            best = price["step_s"], os.path.basename(path)[:-len(".plan")]
    return best


def check(dnnc, name, row, folder):
    plan = os.path.join(folder, "found.plan")
    done, cpu, wall = run(command(dnnc, "plan", row, "--json", "--quiet", "-o",
                                  plan))
    if done.returncode != 0:
        print(f"{name:24} exit {done.returncode}: "
              f"{done.stderr.splitlines()[0] if done.stderr else ''}")
        return False
    found = json.loads(done.stdout)
    ranks = sum(of["ranks"] for of in found["ranks"])
    again, _, _ = run(command(dnnc, "simulate", row, "--plan", plan, "--json"))
    price = json.loads(again.stdout) if again.returncode == 0 else {}
    best = best_opponent(dnnc, row, ranks, folder)
    faults = []
    if price.get("step_s") != found["step_s"]:
        faults.append("simulate gives another step")
    if not found["fits"]:
        faults.append("does not fit")
    if best and best[0] < found["step_s"]:
        faults.append(f"{best[1]} is faster")
    shown = f"{best[0] * 1e3:.1f} ms ({best[1]})" if best else "none fits"
    print(f"{name:24} {found['step_s'] * 1e3:10.1f} ms  {shown:26} "
          f"{100 * found['mfu']:5.1f} % {found['candidates']:5} {cpu:6.1f} s "
          f"{wall:6.1f} s  {found['words']}{'  FAULT: ' if faults else ''}"
          f"{', '.join(faults)}", flush=True)
    return not faults


def main():
    dnnc, names = os.path.abspath(sys.argv[1]), sys.argv[2:] or list(ROWS)
    print(f"{'row':24} {'step':>13}  {'data parallelism, ZeRO':26} "
          f"{'MFU':>7} {'tried':>5} {'CPU':>8} {'wall':>8}  plan")
    is_good = True
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            is_good &= check(dnnc, name, ROWS[name], folder)
    sys.exit(not is_good)


if __name__ == "__main__":
    main()

"""How much communication of a training step no computation hides.

    python3 benchmarks/overlap.py DNNC MODEL PLAN [NAME=VALUE ...]

Runs MODEL under PLAN with --trace and prints, for the median step of the
slowest rank: the step, what its collectives take, what the rank waits for
them ("exposed"), and what the order of launches may expose (ARCHITECTURE.md):
the last bulk collective, what begins after it, and the blocking collectives
before the first matmul.
"""
import json
import statistics
import subprocess
import sys
import tempfile

STEPS = 12  # the first two are left out: caches and connections are cold


def trace_of(dnnc, model, plan, overrides):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([dnnc, "run", model, "--plan", plan, "--steps", str(STEPS),
                        "--no-save", "--quiet", "--trace", file.name, *overrides],
                       check=True, stdout=subprocess.DEVNULL)
        return json.load(open(file.name))["traceEvents"]


def steps_of(events, rank):
    """For each step: its instructions and collectives in order of begin."""
    slices = [e for e in events if e["ph"] == "X" and e["pid"] == rank]
    steps = {}
    for e in slices:
        if e["tid"] == 0:
            steps.setdefault(e["args"]["step"], []).append(e)
    spans = {s: (list_[0]["ts"], list_[-1]["ts"] + list_[-1]["dur"])
             for s, list_ in steps.items()}
    for step in sorted(steps)[2:]:
        begin, end = spans[step]
        comm = [e for e in slices if e["tid"] > 0 and begin <= e["ts"] <= end]
        yield steps[step], sorted(comm, key=lambda e: e["ts"])


def figures(instructions, collectives):
    begin = instructions[0]["ts"]
    end = instructions[-1]["ts"] + instructions[-1]["dur"]
    exposed = sum(e["dur"] for e in instructions
                  if e["args"]["phase"] == "communication")
    matmul = next((e["ts"] for e in instructions if e["args"]["flops"] > 1e6), end)
    bulk = [e for e in collectives if e["tid"] == 2]
    last = max(bulk, key=lambda e: e["ts"] + e["dur"]) if bulk else None
    tail = last["ts"] + last["dur"] if last else end
    allowed = (last["dur"] if last else 0) + sum(
        e["dur"] for e in collectives
        if e is not last and (e["ts"] >= tail or e["ts"] < matmul))
    return end - begin, sum(e["dur"] for e in collectives), exposed, allowed


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    dnnc, model, plan, *overrides = sys.argv[1:]
    events = trace_of(dnnc, model, plan, overrides)
    ranks = sorted({e["pid"] for e in events})
    rows = []
    for rank in ranks:
        all_steps = [figures(*s) for s in steps_of(events, rank)]
        rows.append([statistics.median(c) / 1e3 for c in zip(*all_steps)])
    step, comm, exposed, allowed = max(rows, key=lambda row: row[2])
    print(f"step {step:.2f} ms, communication {comm:.2f} ms, exposed {exposed:.2f} ms "
          f"({100 * exposed / step:.1f} % of the step), allowed {allowed:.2f} ms")


main()

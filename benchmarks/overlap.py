"""How much communication of a training step no computation hides.

    python3 benchmarks/overlap.py DNNC MODEL PLAN [NAME=VALUE ...]

Runs MODEL under PLAN with --trace and prints, for the median step of each
rank: the step, what the transfers of its collectives take, what the rank waits
for them ("exposed"), what the order of launches may expose (docs/inside/launches.md):
the last bucket, what begins after it, and the blocking collectives before the
first matmul; and how long it waits for a rank that comes later to a collective.
All ranks must be members of each collective: a trace does not name its groups.
"""
import json
import statistics
import subprocess
import sys
import tempfile

STEPS = 12  # the first two are left out: caches and connections are cold
SCALARS = 64  # bytes of a loss or a norm, which is no bucket


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


def mark_transfers(events):
    """A collective transfers data from when its last rank has begun it; a rank
    that waits before that waits for a slower rank, not for communication."""
    begun, seen = {}, {}
    collectives = [e for e in events if e["ph"] == "X" and e["tid"] > 0]
    for e in sorted(collectives, key=lambda e: e["ts"]):
        rank = e["pid"], e["args"]["id"]
        seen[rank] = seen.get(rank, 0) + 1
        e["key"] = e["args"]["id"], seen[rank]
        begun[e["key"]] = max(e["ts"], begun.get(e["key"], 0))
    for e in collectives:
        e["end"] = e["ts"] + e["dur"]
        e["transfer"] = min(begun[e["key"]], e["end"])


def shared(begin, end, spans):
    """How much of begin..end lies in one of the spans, which may overlap."""
    total, at = 0, begin
    for low, high in sorted(spans):
        low, high = max(low, at), min(high, end)
        if low < high:
            total, at = total + high - low, high
    return total


def figures(instructions, collectives):
    begin = instructions[0]["ts"]
    end = instructions[-1]["ts"] + instructions[-1]["dur"]
    waits = [(e["ts"], e["ts"] + e["dur"]) for e in instructions
             if e["args"]["phase"] == "communication"]
    spans = [(e["transfer"], e["end"]) for e in collectives]
    exposed = sum(shared(low, high, spans) for low, high in waits)
    slower = sum(high - low for low, high in waits) - exposed
    matmul = next((e["ts"] for e in instructions if e["args"]["flops"] > 1e6), end)
    bulk = [e for e in collectives if e["tid"] == 2 and e["args"]["bytes"] > SCALARS]
    last = max(bulk, key=lambda e: e["end"]) if bulk else None
    tail = last["end"] if last else end
    allowed = sum(e["end"] - e["transfer"] for e in collectives
                  if e is last or e["ts"] >= tail or e["ts"] < matmul)
    return (end - begin, sum(high - low for low, high in spans), exposed, allowed,
            slower)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    dnnc, model, plan, *overrides = sys.argv[1:]
    events = trace_of(dnnc, model, plan, overrides)
    mark_transfers(events)
    for rank in sorted({e["pid"] for e in events}):
        all_steps = [figures(*s) for s in steps_of(events, rank)]
        step, comm, exposed, allowed, slower = (
            statistics.median(c) / 1e3 for c in zip(*all_steps))
        print(f"rank {rank}: step {step:.2f} ms, transfers {comm:.2f} ms, exposed "
              f"{exposed:.2f} ms ({100 * exposed / step:.1f} % of the step), allowed "
              f"{allowed:.2f} ms; waits for a slower rank {slower:.2f} ms")


main()

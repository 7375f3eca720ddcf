"""Bytes over the border of two islands, and waits at it.

    tools/network.sh islands [MBIT]      two islands of two ranks

calls this with DNNC and the name of the link between them.  Each case trains a
model under a plan for the islands, and under the plan without them.  Printed
are the bytes that cross in each direction in a step, by the counters of the
link, beside the least that can: the sums of one side for the other, or the
values of a cut and their gradients.  All have f32 and no header.  Exit status 1:
more than 1.06 times the least cross, losses are further apart than 1e-6, or a
wait of the trace ends although no message has arrived.
"""
import json
import os
import subprocess
import sys
import tempfile

from compare_ranks import inside

MOST_BYTES, MOST_APART = 1.06, 1e-6
# A wait that is as long ends at most so long after its message, both in us: ranks
# may have to share a core.
LONG_WAIT, LATE = 5e3, 5e3
STEPS = 6
MLP = ["benchmarks/systems/mlp.dnn", "B=256", "P=512", "H1=1024", "H2=1024",
       "optimizer=sgd(lr=0.01, momentum=0.9)"]
MLP_SIZES = (512 * 1024 + 1024, 1024 * 1024 + 1024, 1024 * 8 + 8)
GPT = ["benchmarks/systems/gpt.dnn", "T=64", "V=2048", "C=256", "H=8", "L=2"]
PLAIN = "mesh { island = 2; data = 2 }\nplan { bucket = 25MB }\n"
SUMS = ("mesh { island = 2; data = 2 }\n"
        "plan { bucket = 25MB; sync = hierarchical over island }\n")
STAGES = ("mesh { pipe = 2; data = 2 }\n"
          "plan { microbatches = 2; cut after linear[0] }\n")
# arguments of dnnc build, plan, bytes in each direction; None: of all parameters
CASES = {"mlp": (MLP, SUMS, 4 * sum(MLP_SIZES)), "gpt2": (GPT, SUMS, None),
         "stages": (MLP, STAGES, 4 * 256 * 1024)}


def build(dnnc, arguments, plan, bundle):
    with open(bundle + ".plan", "w") as file:
        file.write(plan)
    subprocess.run([dnnc, "build", *arguments, "--plan", bundle + ".plan",
                    "-o", bundle, "--quiet"], check=True)


def crossed(link):
    """Bytes from the first island to the second, and back."""
    name = os.environ["DNNC_NETWORK"] + "bridge"
    stats = json.loads(subprocess.check_output(
        ["ip", "-n", name, "-s", "-j", "link", "show", link]))[0]["stats64"]
    return [stats["tx"]["bytes"], stats["rx"]["bytes"]]


def train(bundle, link, steps, more=()):
    command = os.environ["DNNC_NETWORK_MPIRUN"].split()
    for rank in range(4):
        command += [":"] if rank > 0 else []
        command += ["-n", "1", "-host", f"10.88.0.{rank + 1}",
                    f"{bundle}/rank-{rank:04d}", "--steps", str(steps),
                    "--json", "--data", os.getcwd(), "--no-save", *more]
    before = crossed(link)
    result = subprocess.run(inside(0, command), capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"exit code {result.returncode}: {result.stderr}")
    lines = [json.loads(line) for line in result.stdout.splitlines()
             if line.startswith("{")]
    losses = [line["loss"] for line in lines if "ms" in line]
    times = sorted(line["ms"] for line in lines if "ms" in line)
    return (losses, times[len(times) // 2],
            [b - a for a, b in zip(before, crossed(link))])


def bytes_of_step(bundle, link):
    """Without what a run sends before and after its steps."""
    few = train(bundle, link, STEPS)
    many = train(bundle, link, 3 * STEPS)
    return many[0], many[1], [(b - a) / (2 * STEPS)
                              for a, b in zip(few[2], many[2])]


def late_waits(bundle, link):
    """The long waits of all ranks, and those that end without their message."""
    path = bundle + ".trace"
    train(bundle, link, STEPS, ["--trace", path])
    n, late = 0, []
    for rank in range(4):
        name = f"{path}.{rank}"
        with open(name if os.path.exists(name) else path) as file:
            events = [e for e in json.load(file)["traceEvents"]
                      if e["ph"] == "X" and e["pid"] == rank]
        ends = [(e["args"]["id"], e["ts"] + e["dur"])
                for e in events if e["tid"] > 0]
        for e in events:
            if "waits_for" not in e["args"] or e["dur"] < LONG_WAIT:
                continue
            end = e["ts"] + e["dur"]
            apart = min(abs(end - x) for number, x in ends
                        if number == e["args"]["waits_for"])
            n += 1
            if apart > LATE:
                late.append((rank, e["name"], e["dur"], apart))
    return n, late


def parameters(bundle):
    result = subprocess.run(
        ["mpirun", "-q", "--allow-run-as-root", "--oversubscribe", "-n", "4",
         bundle + "/rank-0000", "--steps", "1", "--no-save", "--data",
         os.getcwd()], capture_output=True, text=True)
    words = (result.stdout + result.stderr).split()
    return int(words[words.index("parameters,") - 1])


def compare(dnnc, link, case, folder):
    arguments, plan, least = CASES[case]
    bundle, plain = os.path.join(folder, case), os.path.join(folder, "plain")
    build(dnnc, arguments, plan, bundle)
    build(dnnc, arguments, PLAIN, plain)
    least = least or 4 * parameters(bundle)
    losses, ms, counts = bytes_of_step(bundle, link)
    other, other_ms, other_counts = bytes_of_step(plain, link)
    apart = max(abs(a - b) / abs(b) for a, b in zip(losses, other))
    n, late = late_waits(bundle, link)
    factor = max(counts) / least
    print(f"{case:8}{least / 1e6:9.3f}{counts[0] / 1e6:9.3f}"
          f"{counts[1] / 1e6:9.3f}{factor:8.3f}{max(other_counts) / 1e6:9.3f}"
          f"{ms:9.1f}{other_ms:9.1f}{apart:10.1e}{n:7}{len(late):6}",
          flush=True)
    for rank, name, us, gap in late:
        print(f"  rank {rank} waited {us / 1e3:.1f} ms at {name}, whose message "
              f"ended {gap / 1e3:.1f} ms apart")
    return factor <= MOST_BYTES and apart <= MOST_APART and n > 0 and not late


def main():
    dnnc, link, *cases = sys.argv[1:]
    print("case      least MB  there    back  factor  without       ms  "
          "without  losses  waits  late", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        good = [compare(dnnc, link, case, folder) for case in cases or CASES]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()

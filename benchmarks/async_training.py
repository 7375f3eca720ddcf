"""Seconds to a loss: plans that change what is computed, against those that do not.

    tools/network.sh target [MBIT [KIND ...]]        default: 200, all kinds

calls this with DNNC and MBIT.  chargpt with an output table of its own and
without clip trains on four hosts, a rank on each; servers of parameters stand
beside the workers, one on each host.  A run ends when the mean training loss of
WINDOW steps is TARGET, or after LIMIT seconds.  A step is a batch of 12
sequences; under a staleness it is one clock of all workers, and the losses are
those of the first worker's share.  Each kind runs with the seeds SEEDS ("1 2").  Printed
are the seconds for 100 steps, and those to the target, from the first step on.
Exit status 1: a run fails.
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from compare_ranks import inside

TARGET = float(os.environ.get("TARGET", "2.36"))
SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "1 2").split()]
LIMIT = float(os.environ.get("LIMIT", "400"))
WINDOW, HOSTS = 50, 4
DATA = "mesh { data = 4 }\n"
PIPE = "mesh { pipe = 4 }\n"
CUTS = [f"cut after block[{i}]" for i in range(3)]
# mesh, lines of the plan, ranks
KINDS = {
    "bsp": (DATA, ["sync = server(ranks = 4..7, staleness = 0)"], 8),
    "asp": (DATA, ["sync = server(ranks = 4..7, staleness = none)"], 8),
    "ssp2": (DATA, ["sync = server(ranks = 4..7, staleness = 2)"], 8),
    "1f1b": (PIPE, ["schedule = 1f1b", "microbatches = 4", *CUTS], 4),
    "pipedream": (PIPE, ["schedule = pipedream", *CUTS], 4),
    "2bw": (PIPE, ["schedule = 2bw", "microbatches = 4", *CUTS], 4),
    "data": (DATA, [], 4),
    "bf16": (DATA, ["compress = bf16"], 4),
    "power4": (DATA, ["compress = power(rank = 4)"], 4),
}


def untied(path):
    """chargpt with a table for its output and without clip."""
    with open("models/chargpt.dnn") as file:
        text = file.read()
    for old, new in (
            ("  return dot(norm(x), wte, C)",
             "  param head: [V, C] = normal(0.02)\n"
             "  return dot(norm(x), head, C)"),
            ("  clip         = 1.0\n", "")):
        if text.count(old) != 1:
            sys.exit(f"models/chargpt.dnn does not have '{old}' once")
        text = text.replace(old, new)
    with open(path, "w") as file:
        file.write(text)
    return path


def build(dnnc, folder, kind):
    mesh, lines, _ = KINDS[kind]
    bundle = os.path.join(folder, kind)
    with open(bundle + ".plan", "w") as file:
        file.write(mesh + "plan {\n" + "".join(
            f"  {line}\n" for line in lines) + "}\n")
    subprocess.run([dnnc, "build", os.path.join(folder, "untied.dnn"),
                    "eval_every=0", "save_every=0", "--plan", bundle + ".plan",
                    "-o", bundle, "--quiet"], check=True)
    return bundle


def command_of(bundle, ranks, seed):
    command = os.environ["DNNC_NETWORK_MPIRUN"].split() + ["--oversubscribe"]
    for rank in range(ranks):
        command += [":"] if rank > 0 else []
        command += ["-n", "1", "-host", f"10.88.0.{rank % HOSTS + 1}",
                    f"{bundle}/rank-{rank:04d}", "--seed", str(seed),
                    "--json", "--no-save", "--data", os.getcwd()]
    return inside(0, command)


def train(bundle, ranks, seed):
    """Seconds for 100 steps, and to the target or None, steps, last mean."""
    times, losses, reached = [], [], None
    with subprocess.Popen(command_of(bundle, ranks, seed), text=True,
                          stdout=subprocess.PIPE) as run:
        for line in run.stdout:
            line = json.loads(line) if line.startswith("{") else {}
            if "ms" not in line:
                continue
            times.append(time.monotonic())
            losses.append(line["loss"])
            seconds = times[-1] - times[0]
            if reached is None and len(losses) >= WINDOW and (
                    statistics.mean(losses[-WINDOW:]) <= TARGET):
                reached = seconds, len(losses)
            if (reached and len(times) > 101) or seconds > LIMIT:
                run.send_signal(signal.SIGTERM)
                break
        for _ in run.stdout:
            pass
    if len(times) < 102:
        sys.exit(f"{bundle}: only {len(times)} steps, "
                 f"exit code {run.returncode}")
    hundred = 100 * (times[-1] - times[1]) / (len(times) - 2)
    return hundred, reached, len(losses), statistics.mean(losses[-WINDOW:])


def main():
    dnnc, mbit, *kinds = sys.argv[1:]
    print(f"links of {mbit} Mbit/s, mean loss {TARGET} over {WINDOW} steps")
    print("kind      seed  s for 100 steps  s to the loss  steps", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        untied(os.path.join(folder, "untied.dnn"))
        for kind in kinds or KINDS:
            bundle = build(dnnc, folder, kind)
            for seed in SEEDS:
                hundred, reached, steps, mean = train(
                    bundle, KINDS[kind][2], seed)
                found = (f"{reached[0]:15.1f}{reached[1]:7}" if reached else
                         f"  {mean:.3f} at last{steps:7}")
                print(f"{kind:10}{seed:4}{hundred:17.1f}{found}", flush=True)


if __name__ == "__main__":
    main()

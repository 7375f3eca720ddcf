"""Time of a training step on several ranks: dnnc against PyTorch over Gloo.

    python3 benchmarks/compare_ranks.py DNNC MBIT ROUNDS CASE...

tools/network.sh calls it, after it has made a network namespace for each rank,
named $DNNC_NETWORK and a number, whose link carries MBIT in each direction.
The cases are those of peers/torch_ranks.py.  $DNNC_TORCH_PYTHON is a python
with torch and numpy.  One thread for each rank, f32, same sizes, batch and kind
of optimizer.  In each round dnnc makes its steps, then PyTorch; the figure is
the ratio of their medians of each round (below 1: dnnc is faster), its median,
least and largest.  Losses of both begin at ln(classes); in the first round they
must lie within 1 of that (of VGG-16's random labels: within 2) and so of each
other.  dnnc begins anew in each round, PyTorch goes on, so its loss must lie as
near to that of its round before.
"""
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

GPT = ["models/gpt2.dnn", "L=4", "T=64", "batch=8", "precision.compute=f32",
       "eval_every=0", "eval_batches=1", "save_every=0"]
# ranks, arguments of dnnc build, plan, classes, how far losses may lie apart
CASES = {
    "vgg16": (4, ["models/vgg16.dnn", "batch=12"], "mesh { data = 4 }\n",
              1000, 2),
    "gpt2": (4, GPT, "mesh { data = 4 }\n", 50257, 1),
    "zero3": (2, GPT, "mesh { data = 2 }\nplan { zero = 3 }\n", 50257, 1),
    "tensor": (2, GPT, "mesh { tensor = 2 }\nplan { shard H, F over tensor }\n",
               50257, 1),
}
PREFIX = os.environ["DNNC_NETWORK"]
PORT = "29500"


def inside(rank, command):
    """The command in the namespace of a rank, under its own host name."""
    name = PREFIX + str(rank)
    return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c",
            'hostname "$0"; exec "$@"', name, *command]


def sent(rank=0):
    return int(subprocess.check_output(inside(
        rank, ["cat", "/sys/class/net/eth0/statistics/tx_bytes"])))


def run_dnnc(bundle, ranks, steps):
    """Times of steps in ms, the last loss, and bytes sent while they ran.  The
    first step, which touches every page for the first time, counts only where
    it is the only one."""
    command = os.environ["DNNC_NETWORK_MPIRUN"].split()
    for rank in range(ranks):
        command += [":"] if rank > 0 else []
        command += ["-n", "1", "-host", f"10.88.0.{rank + 1}",
                    f"{bundle}/rank-{rank:04d}", "--steps", str(steps),
                    "--json", "--data", os.getcwd(), "--no-save"]
    times, counts = [], [sent()]
    with subprocess.Popen(inside(0, command), stdout=subprocess.PIPE,
                          text=True) as run:
        for line in run.stdout:
            line = json.loads(line) if line.startswith("{") else {}
            if "ms" in line and "step" in line:
                times.append(line["ms"])
                counts.append(sent())
                loss = line["loss"]
    if run.returncode or len(times) != steps:
        sys.exit(f"dnnc: exit code {run.returncode}, {len(times)} steps")
    first = steps > 1
    return times[first:], loss, counts[-1] - counts[first]


class Peer:
    def __init__(self, case, ranks):
        self.processes = []
        for rank in range(ranks):
            variables = {"RANK": rank, "WORLD_SIZE": ranks,
                         "MASTER_ADDR": "10.88.0.1", "MASTER_PORT": PORT,
                         "GLOO_SOCKET_IFNAME": "eth0"}
            self.processes.append(subprocess.Popen(
                inside(rank, [os.environ["DNNC_TORCH_PYTHON"],
                              "benchmarks/peers/torch_ranks.py", case]),
                env=os.environ | {k: str(v) for k, v in variables.items()},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def run(self, steps):
        first, before = self.processes[0], sent()
        first.stdin.write(json.dumps({"steps": steps}) + "\n")
        first.stdin.flush()
        answer = json.loads(first.stdout.readline())
        return answer["all"], answer["loss"], sent() - before

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait()


def compare(dnnc, mbit, rounds, case, folder):
    ranks, arguments, plan, classes, apart = CASES[case]
    path, bundle = os.path.join(folder, case + ".plan"), os.path.join(
        folder, case)
    with open(path, "w") as file:
        file.write(plan)
    subprocess.run([dnnc, "build", *arguments, "--plan", path, "-o", bundle,
                    "--quiet"], check=True)
    steps = 2 if case == "vgg16" else 3
    peer = Peer(case, ranks)
    peer.run(1)  # warm-up
    median, pairs = statistics.median, []
    expected = [math.log(classes)] * 2
    for _ in range(rounds):
        pairs.append((run_dnnc(bundle, ranks, steps), peer.run(steps)))
        for side, (_, loss, _) in enumerate(pairs[-1]):
            if not abs(loss - expected[side]) < apart:
                sys.exit(f"{case}: a loss is {loss}, not {expected[side]}")
        expected[1] = pairs[-1][1][1]
        print("  " + ", ".join(
            f"{median(times):.0f} ms (loss {loss:.3f}, "
            f"{count * 8e-3 / sum(times) / mbit * 100:.0f} % of the link)"
            for times, loss, count in pairs[-1]), flush=True)
    peer.close()
    ratios = [median(ours[0]) / median(theirs[0]) for ours, theirs in pairs]
    ours, theirs = ([median(pair[side][0]) for pair in pairs]
                    for side in (0, 1))
    shares = [median(pair[side][2] * 8e-3 / sum(pair[side][0]) / mbit
                     for pair in pairs) * 100 for side in (0, 1)]
    print(f"{case}, {ranks} ranks, {mbit:.0f} Mbit/s: dnnc {median(ours):.0f} "
          f"ms, PyTorch {median(theirs):.0f} ms a step; ratio median "
          f"{median(ratios):.3f}, least {min(ratios):.3f}, largest "
          f"{max(ratios):.3f} of {rounds} rounds; a rank sends at "
          f"{shares[0]:.0f} % and {shares[1]:.0f} % of its link", flush=True)


def main():
    dnnc, mbit, rounds, *cases = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for case in cases or CASES:
            compare(dnnc, float(mbit), int(rounds), case, folder)


if __name__ == "__main__":
    main()

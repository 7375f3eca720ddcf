"""VGG-16 under PipeDream's plan against data parallelism, four ranks.

    tools/network.sh async [MBIT ...]         default: 200 and 1000

calls this with DNNC, MBIT and ROUNDS.  Each update has 12 images: data
parallelism gives each of four ranks three of them; under `schedule = pipedream`
minibatches of four go in turn to three replicas of the convolutions, which
update once for three minibatches, and the rank of the dense layers updates
once for each.  PyTorch's DistributedDataParallel over Gloo is the peer
(peers/torch_ranks.py).  All three run in turn in each round.  Printed are
milliseconds for 12 images, and the bytes that all ranks send for them, by the
counters of their interfaces, as differences of runs of two lengths.  Exit
status 1: PipeDream's plan sends more than 15 % of the bytes of data
parallelism.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

from compare_ranks import Peer, inside, sent

RANKS, CLASSES, MOST_BYTES = 4, 1000, 0.15
MODEL = "models/vgg16.dnn"
# arguments of dnnc build, plan, steps for 12 images, steps of a short run
SIDES = {
    "data": (["batch=12"], "mesh { data = 4 }\n", 1, 1),
    "pipedream": (["batch=4"],
                  "plan {\n  schedule = pipedream\n"
                  "  stage 0: unit, adaptive_avgpool on 0..2\n"
                  "  stage 1: linear on 3\n}\n", 3, 6),
}
MORE = 2  # updates of 12 images that a long run has more than a short one


def build(dnnc, side, folder):
    arguments, plan, _, _ = SIDES[side]
    bundle = os.path.join(folder, side)
    with open(bundle + ".plan", "w") as file:
        file.write(plan)
    subprocess.run([dnnc, "build", MODEL, *arguments, "--plan",
                    bundle + ".plan", "-o", bundle, "--quiet"], check=True)
    return bundle


def all_sent():
    return sum(sent(rank) for rank in range(RANKS))


def train(bundle, steps):
    """Lines of the steps, and the bytes that all ranks have sent."""
    command = os.environ["DNNC_NETWORK_MPIRUN"].split()
    for rank in range(RANKS):
        command += [":"] if rank > 0 else []
        command += ["-n", "1", "-host", f"10.88.0.{rank + 1}",
                    f"{bundle}/rank-{rank:04d}", "--steps", str(steps),
                    "--json", "--no-save"]
    before = all_sent()
    result = subprocess.run(inside(0, command), capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"exit code {result.returncode}: {result.stderr}")
    lines = [json.loads(line) for line in result.stdout.splitlines()
             if line.startswith("{")]
    lines = [line for line in lines if "ms" in line]
    if len(lines) != steps:
        sys.exit(f"{len(lines)} steps of {steps}")
    return lines, all_sent() - before


def measure(bundle, side, known):
    """ms and bytes for 12 images.  Every run sends alike, so the short run,
    which counts bytes alone, runs once."""
    _, _, update, short = SIDES[side]
    if side not in known:
        known[side] = train(bundle, short)[1]
    lines, count = train(bundle, short + MORE * update)
    # The first update touches all memory for the first time and fills the
    # pipeline, the last one drains it.
    inner = lines[update:-update] if update > 1 else lines[1:]
    ms = update * statistics.median(line["ms"] for line in inner)
    return ms, (count - known[side]) / MORE, lines[0]["loss"]


def of_peer():
    """It begins anew each time: its four ranks take 9 GB, which the other sides need."""
    peer = Peer("vgg16", RANKS)
    peer.run(1)  # warm-up
    before = all_sent()
    answer, loss, _ = peer.run(MORE)
    count = (all_sent() - before) / MORE
    peer.close()
    return statistics.median(answer), count, loss


def compare(dnnc, mbit, rounds, folder):
    bundles = {side: build(dnnc, side, folder) for side in SIDES}
    known, found = {}, []
    for _ in range(rounds):
        row = {side: measure(bundle, side, known)
               for side, bundle in bundles.items()}
        row["peer"] = of_peer()
        found.append(row)
        print("  " + ", ".join(
            f"{side} {ms:.0f} ms {count / 1e6:.1f} MB (loss {loss:.2f})"
            for side, (ms, count, loss) in row.items()), flush=True)
    ms, count = ({side: statistics.median(row[side][i] for row in found)
                  for side in found[0]} for i in (0, 1))
    share = count["pipedream"] / count["data"]
    faster = [[row[side][0] / row["pipedream"][0] for row in found]
              for side in ("data", "peer")]
    print(f"VGG-16, 12 images for an update, {mbit:.0f} Mbit/s: pipedream "
          f"{ms['pipedream']:.0f} ms and {count['pipedream'] / 1e6:.0f} MB, "
          f"{100 * share:.1f} % of data parallelism, which takes "
          f"{ms['data']:.0f} ms and {count['data'] / 1e6:.0f} MB, "
          f"PyTorch {ms['peer']:.0f} ms and {count['peer'] / 1e6:.0f} MB; "
          f"pipedream is {statistics.median(faster[0]):.2f} times as fast as "
          f"data parallelism, {statistics.median(faster[1]):.2f} (from "
          f"{min(faster[1]):.2f} to {max(faster[1]):.2f}) as fast as PyTorch",
          flush=True)
    return share <= MOST_BYTES


def main():
    dnnc, mbit, rounds = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(not compare(dnnc, float(mbit), int(rounds), folder))


if __name__ == "__main__":
    main()

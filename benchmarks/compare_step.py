"""Time of a training step: dnnc against PyTorch eager, interleaved.

    python3 benchmarks/compare_step.py chargpt|gpt2|charlstm [ROUNDS [STEPS]]

Both on two threads, same model, batch, optimizer and data, f32.  Each round runs
STEPS steps of one, then of the other; the figure is the ratio of the medians of
each round (below 1: dnnc is faster), its median, least and largest over the
rounds.  The losses after the first round are compared first: both begin at
ln(vocabulary) and must agree within 0.3.
Needs torch and numpy (PyPI), build/dnnc, and nothing else running.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

ARGUMENTS = {
    "chargpt": ["models/chargpt.dnn", "eval_every=0", "eval_batches=1"],
    "gpt2": ["models/gpt2.dnn", "T=64", "batch=4", "precision.compute=f32",
             "eval_every=0", "eval_batches=1", "save_every=0"],
    "charlstm": ["models/charlstm.dnn", "eval_every=0", "eval_batches=1"],
}
PEERS = {"charlstm": "torch_lstm.py"}  # the others: torch_gpt.py


def run_dnnc(bundle, steps, folder):
    environment = dict(os.environ, OMP_NUM_THREADS="2")
    command = [os.path.join(bundle, "run"), "--steps", str(steps), "--json",
               "--data", os.getcwd(), "--no-save"]
    out = subprocess.run(command, env=environment, check=True, cwd=folder,
                         stdout=subprocess.PIPE).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    steps = [line for line in lines if "ms" in line and "step" in line]
    # The first step touches every page for the first time.
    times = [line["ms"] for line in steps[1:]]
    return statistics.median(times), steps[-1]["loss"]


def main():
    name = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else (
        6 if name == "gpt2" else 100)
    folder = tempfile.mkdtemp()
    bundle = os.path.join(folder, "bundle")
    subprocess.run(["build/dnnc", "build", *ARGUMENTS[name], "-o", bundle,
                    "--quiet"], check=True)
    peer = subprocess.Popen(
        [sys.executable,
         "benchmarks/peers/" + PEERS.get(name, "torch_gpt.py"), name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run_peer(n):
        peer.stdin.write(json.dumps({"steps": n}) + "\n")
        peer.stdin.flush()
        answer = json.loads(peer.stdout.readline())
        return answer["ms"], answer["loss"]

    theirs, their_loss = run_peer(steps)  # warm-up
    ours, our_loss = run_dnnc(bundle, steps, folder)
    assert abs(our_loss - their_loss) < 0.3, (our_loss, their_loss)
    print(f"{name}: loss after {steps} steps {our_loss:.3f}, "
          f"PyTorch {their_loss:.3f}")
    pairs = []
    for _ in range(rounds):
        pairs.append((run_dnnc(bundle, steps, folder)[0], run_peer(steps)[0]))
    peer.stdin.close()
    peer.wait()
    ratios = [a / b for a, b in pairs]
    print(f"dnnc {statistics.median(a for a, _ in pairs):.2f} ms, PyTorch "
          f"{statistics.median(b for _, b in pairs):.2f} ms a step; ratio "
          f"median {statistics.median(ratios):.3f}, least {min(ratios):.3f}, "
          f"largest {max(ratios):.3f} of {rounds} rounds")


main()

"""Time of a training step: dnnc against PyTorch eager, interleaved.

    python3 benchmarks/compare_step.py chargpt|gpt2|charlstm|resnet50
                                       [ROUNDS [STEPS]]

Both on two threads (or OMP_NUM_THREADS), same model, batch, optimizer and data, f32.  Each round runs
STEPS steps of one, then of the other; the figure is the ratio of the medians of
each round (below 1: dnnc is faster), its median, least and largest over the
rounds; beside it the ratio of the least times, which other work on the machine
disturbs less.  The losses after the first round are compared first: both begin
at ln(classes) and must agree within 0.3 (resnet50, whose four labels of a step
are noise: within 1).
Needs torch and numpy (PyPI; resnet50 torchvision too), build/dnnc, and nothing
else running.
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
    "resnet50": ["models/resnet50.dnn", "batch=4"],
}
PEERS = {"charlstm": "torch_lstm.py",
         "resnet50": "torch_resnet.py"}  # the others: torch_gpt.py
STEPS = {"gpt2": 6, "resnet50": 6}
APART = {"resnet50": 1.0}  # how far losses may lie apart
os.environ.setdefault("OMP_NUM_THREADS", "2")


def run_dnnc(bundle, steps, folder):
    command = [os.path.join(bundle, "run"), "--steps", str(steps), "--json",
               "--data", os.getcwd(), "--no-save"]
    out = subprocess.run(command, check=True, cwd=folder,
                         stdout=subprocess.PIPE).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    steps = [line for line in lines if "ms" in line and "step" in line]
    # The first step touches every page for the first time.
    times = [line["ms"] for line in steps[1:]]
    return times, steps[-1]["loss"]


def main():
    name = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else (
        STEPS.get(name, 100))
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
        return answer["all"], answer["loss"]

    theirs, their_loss = run_peer(steps)  # warm-up
    ours, our_loss = run_dnnc(bundle, steps, folder)
    assert abs(our_loss - their_loss) < APART.get(name, 0.3), (
        our_loss, their_loss)
    print(f"{name}: loss after {steps} steps {our_loss:.3f}, "
          f"PyTorch {their_loss:.3f}")
    pairs = []
    for _ in range(rounds):
        pairs.append((run_dnnc(bundle, steps, folder)[0], run_peer(steps)[0]))
    peer.stdin.close()
    peer.wait()
    median = statistics.median
    ratios = [median(a) / median(b) for a, b in pairs]
    print(f"dnnc {median(median(a) for a, _ in pairs):.2f} ms, PyTorch "
          f"{median(median(b) for _, b in pairs):.2f} ms a step; ratio "
          f"median {median(ratios):.3f}, least {min(ratios):.3f}, "
          f"largest {max(ratios):.3f} of {rounds} rounds")
    ours, theirs = (min(min(pair[side]) for pair in pairs) for side in (0, 1))
    print(f"least of all steps: {ours:.2f} and {theirs:.2f} ms, ratio "
          f"{ours / theirs:.3f}; {os.environ['OMP_NUM_THREADS']} threads")


main()

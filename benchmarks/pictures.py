"""Steps per second on a folder of JPEG files and on the same pixels in an array, one rank, interleaved.

    python3 benchmarks/pictures.py DNNC [MODEL [N [SIZE [STEPS [ROUNDS [NAME=VALUE ...]]]]]]

MODEL (models/resnet_cifar.dnn) has a data block `image` with fields x and y.  Each of ROUNDS (5) rounds trains STEPS (8)
steps from the array and from the folder of N (2,000) pictures of SIZE (32) pixels and takes the median step of each, the
first two apart.  The ratio is that of the medians over the rounds; both must print the same losses.  On a machine with
other work the processor time of a complete run says more: the rates of two runs that use all cores are as these.
"""
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile


def train(bundle, steps):
    """Returns the losses, the milliseconds of the steps and the processor time of the run in seconds."""
    command = [os.path.join(bundle, "run"), "--no-save", "--json", "--steps", str(steps)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    rows = [line for line in lines if "step" in line and "ms" in line]
    return [row["loss"] for row in rows], [row["ms"] for row in rows][2:], used


def main():
    words = dict(enumerate(sys.argv))
    dnnc, model = os.path.abspath(words[1]), os.path.abspath(words.get(2, "models/resnet_cifar.dnn"))
    n, size, steps, rounds = (int(words.get(3 + i, init)) for i, init in enumerate((2000, 32, 8, 5)))
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        subprocess.run(["cc", "-O1", "-o", "make", root + "/tests/e2e/make_pictures.c", "-ldl"], check=True)
        subprocess.run(["./make", "set", str(n), "10", str(size)], check=True)
        sources = {
            "array": ['image.x=npy("set-x.npy") / 255', 'image.y=npy("set-y.npy")'],
            "folder": ['image.x=images("set")', 'image.y=labels("set")'],
        }
        for name, words in sources.items():
            subprocess.run(
                [dnnc, "build", model, "--quiet", "-o", name, "steps=1000", *sys.argv[7:], *words], check=True
            )
        times, used, losses = {name: [] for name in sources}, {name: [] for name in sources}, {}
        for _ in range(rounds):
            for name in sources:
                losses[name], ms, seconds = train(name, steps)
                used[name].append(seconds)
                times[name].append(statistics.median(ms))
        if losses["array"] != losses["folder"]:
            sys.exit(f"the losses differ: {losses}")
        median = {name: statistics.median(ms) for name, ms in times.items()}
        for name, ms in times.items():
            print(
                f"{name}: {median[name]:.1f} ms a step ({min(ms):.1f} to {max(ms):.1f}, {rounds} rounds), "
                f"{statistics.median(used[name]):.2f} s of processor time ({min(used[name]):.2f} to {max(used[name]):.2f})"
            )
        print(f"steps per second of the folder / the array: {median['array'] / median['folder']:.3f}")
        seconds = [statistics.median(used[name]) for name in sources]
        print(f"processor time of a run from the array / the folder: {seconds[0] / seconds[1]:.3f}")


main()

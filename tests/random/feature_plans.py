"""feature_plans.py DNNC COUNT [SEED [RUNS]]: random plans that combine features, through all commands that take a plan.

A plan has some of: servers, versions of parameters, islands, compressed gradients, ZeRO, offload, remat and keep, stages,
micro-batches, shards of names.  Its model is a small MLP or GPT with some of: averages, clipping, groups of parameters,
other optimizers, a loss scale, 16 bits.  Each command must end with 0, or with 1 or 2 and an error that has a place, a caret
and, in time.  Beyond that:

  - the plan of a bundle builds again, to the same plan;
  - what `build` takes, `simulate`, `show` and `plan` take, or refuse as not supported;
  - what `build` refuses, they refuse too;
  - the plan that `dnnc plan` prints is one that `simulate` takes and that is printed again;
  - `verify` finds no difference;
  - the first RUNS plans that build are trained for two steps, over MPI; plans that compute the step of one rank give its
    losses.

The same count and seed give the same plans.  Plans that fail are left in the current folder.
"""

import collections
import json
import os
import random
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOT_YET = ("not supported", "no such plan", "do not support", "does not support", "no proof")
CHANGES = ("server", "pipedream", "2bw", "power", "bf16", "f16")  # plans whose losses are not those of one rank

MLP = """dim B = 12, P = 64, H = 8, K = 10
layer linear[I -> O](x: [..., I]) -> [..., O] {
  param w: [I, O] = he_uniform(I)
  param b: [O] = zeros
  return dot(x, w, I) + b
}
net tiny(x: [B, P]) -> [B, K] {
  x = relu(linear[P -> H](x))
  x = relu(linear[H -> H](x))
  x = relu(linear[H -> H](x))
  return linear[H -> K](x)
}
data set {
  x: [B, P] = csv("data/inputs/uci-digits.csv.gz", 0..63) / 16
  y: i32[B] = csv("data/inputs/uci-digits.csv.gz", 64)
  eval = 30
}
train {
  loss = cross_entropy(tiny(set.x), set.y, K)
  metrics = [accuracy(tiny(set.x), set.y, K)]
  optimizer = sgd(lr = 0.1, momentum = 0.9)
  steps = 2
@SETTINGS@}
"""


def read_gpt():
    """Returns chargpt with two small blocks."""
    with open(os.path.join(ROOT, "models/chargpt.dnn"), encoding="utf-8") as file:
        text = file.read()
    sizes = {"T = 64": "T = 8", "C = 128": "C = 16", "H = 4": "H = 2", "L = 4": "L = 2"}
    for old, new in sizes.items():
        text = text.replace(old, new, 1)
    text = re.sub(r"\n  clip .*\n  steps .*\n  eval_every .*\n  eval_batches .*\n", "\n  steps = 2\n  eval_batches = 1\n@SETTINGS@", text)
    return text


class Kind:
    def __init__(self, name, text, layers, matrices, stages, dims):
        self.name, self.text, self.layers, self.matrices, self.stages, self.dims = name, text, layers, matrices, stages, dims


def kinds():
    linear = [f"linear[{i}]" for i in range(4)]
    mlp = Kind("mlp", MLP, linear, [f"{path}.w" for path in linear], ["x[0]", "x[1]", "x[2]"], ["H", "K"])
    gpt = Kind(
        "gpt",
        read_gpt(),
        ["block", "block[0]", "block[1].attn", "block.mlp"],
        ["block.attn.wq", "block[1].mlp.w1", "wte", "wpe", "block.norm[0].g"],
        ["block[0]"],
        ["H", "F", "V", "C", "T"],
    )
    return [mlp, gpt]


def settings_of(rng, kind):
    """Returns lines of the train block, and a precision block."""
    lines = []
    if rng.random() < 0.2:
        lines.append("ema = 0.5")
    if rng.random() < 0.25:
        lines.append("clip = 1")
    if rng.random() < 0.15:
        lines += ["save_best = true", "eval_every = 1"]
        if rng.random() < 0.5:
            lines.append("patience = 2")
    if rng.random() < 0.15:
        lines.append(f"group {rng.choice(kind.matrices)} {{ lr = 0.5x }}")
    precision = ""
    if rng.random() < 0.2:
        words = ["compute = bf16"] + (["loss_scale = dynamic"] if rng.random() < 0.4 else [])
        words += ["grads = bf16"] if rng.random() < 0.2 else []
        precision = "precision { " + "; ".join(words) + " }\n"
    return lines, precision


def optimizer_of(rng):
    return rng.choice(["sgd(lr = 0.1)", "adamw(lr = 0.01)", "lamb(lr = 0.01)", "adafactor(lr = 0.01)", "muon(lr = 0.01)"])


def model_of(rng, kind):
    lines, precision = settings_of(rng, kind)
    text = kind.text.replace("@SETTINGS@", "".join(f"  {line}\n" for line in lines))
    if rng.random() < 0.3:
        text = re.sub(r"  optimizer *= .*", "  optimizer = " + optimizer_of(rng), text)
    return text + precision


def stage_lines(rng, kind):
    n = rng.randint(1, len(kind.stages))
    return [f"cut after {path}" for path in sorted(rng.sample(kind.stages, n))]


def sync_line(rng, axes, n_ranks):
    if "island" in axes and rng.random() < 0.8 or rng.random() < 0.05:
        return ["sync = hierarchical over " + rng.choice(["island", "island", "data"])]
    if rng.random() < 0.2:
        n = rng.choice([1, 1, 2, 3])
        first = n_ranks - (1 if rng.random() < 0.05 else 0)
        ranks = f"{first}..{first + n - 1}" if n > 1 or rng.random() < 0.5 else f"{first}"
        return [f"sync = server(ranks = {ranks}, staleness = {rng.choice(['0', '0', '1', '3', 'none'])})"]
    return []


def offload_lines(rng, kind):
    names = []
    if rng.random() < 0.6:
        names.append(rng.choice(kind.layers))
    if rng.random() < 0.4:
        names.append(rng.choice(kind.matrices))
    if rng.random() < 0.5:
        names.append(rng.choice(["optimizer", "optimizer." + rng.choice(kind.matrices)]))
    return ["offload " + ", ".join(names)] if names else []


def some_lines(rng, kind):
    """Returns lines about memory, dtypes and gradients."""
    lines = []
    if rng.random() < 0.3:
        lines.append(f"zero = {rng.randint(1, 3)}")
    if rng.random() < 0.3:
        lines.append("compress = " + rng.choice(["bf16", "f16", "power(rank = 1)", "power(rank = 2)"]))
    if rng.random() < 0.3:
        lines += offload_lines(rng, kind)
    if rng.random() < 0.2:
        lines.append(rng.choice(["remat ", "keep "]) + rng.choice(kind.layers))
    if rng.random() < 0.2:
        lines.append("bucket = " + rng.choice(["1kB", "300B", "25MB"]))
    if rng.random() < 0.1:
        lines.append("prefetch = 1kB")
    if rng.random() < 0.15:
        lines.append("reduce = bf16")
    return lines


def plan_of(rng, kind):
    axes = {}
    if rng.random() < 0.35:
        axes["island"] = 2
    if rng.random() < 0.6:
        axes["data"] = rng.choice([1, 2, 2, 3])
    if rng.random() < 0.2:
        axes["tensor"] = 2
    lines, n_ranks = some_lines(rng, kind), 1
    micro = rng.choice([1, 1, 1, 2, 2, 3, 4])
    if rng.random() < 0.4:
        cuts = stage_lines(rng, kind)
        axes["pipe"] = len(cuts) + 1
        lines += cuts
        schedule = rng.choice(["1f1b", "gpipe", "fthenb", "zbh1", "zbh2", "pipedream", "pipedream(vertical = true)", "2bw"])
        micro = 1 if schedule.startswith("pipedream") and rng.random() < 0.9 else max(micro, rng.choice([1, 2, 4]))
        lines.append(f"schedule = {schedule}")
        if schedule in ("pipedream", "2bw") or "vertical" in schedule:
            for name in list(axes):
                if name != "pipe" and rng.random() < 0.7:
                    del axes[name]
    for size in axes.values():
        n_ranks *= size
    if micro > 1 or rng.random() < 0.3:
        lines.append(f"microbatches = {micro}")
    if "tensor" in axes:
        lines.append("shard " + rng.choice(kind.dims) + " over tensor")
    lines += sync_line(rng, axes, n_ranks)
    rng.shuffle(lines)
    mesh = f"mesh {{ {'; '.join(f'{name} = {size}' for name, size in axes.items())} }}\n" if axes else "mesh { data = 1 }\n"
    return mesh + "plan {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


class Trial:
    """A model and a plan, with what the commands said."""

    def __init__(self, dnnc, name, kind, plan, model):
        self.dnnc, self.name, self.kind, self.plan, self.model = dnnc, name, kind, plan, model
        self.wrong = []
        self.environment = dict(os.environ)

    def blame(self, command, why):
        self.wrong.append(f"{' '.join(command)}\n  {why}")

    def call(self, *words, env=None):
        """Runs a command; returns the exit code, standard output and the message of its first error."""
        command = [self.dnnc, *words]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            self.blame(command, "no end in 120 s")
            return -1, "", ""
        message = re.search(r"^(?:[^\n:]+:\d+:\d+: error: |dnnc: error: )(.*)", run.stderr, re.M)
        located = re.search(r"^[^\n:]+:\d+:\d+: error: .*\n +\d+ \| .*\n +\| +\^", run.stderr, re.M)
        text = message.group(1) if message else ""
        if run.returncode not in (0, 1, 2):
            self.blame(command, f"exit {run.returncode}: {run.stderr[-600:]}")
        elif run.returncode == 1 and not located:
            self.blame(command, f"no place: {run.stderr[-600:]}")
        elif run.returncode == 1 and "help: " not in run.stderr:
            HELPLESS[re.sub(r"'[^']*'|\d+", "_", text)[:140]] += 1
        return run.returncode, run.stdout, text

    def agree(self, command, code, message, built):
        """`command` must take what `build` took, or say that it does not yet."""
        if code == 0 and built == 1 and command != "plan":  # which may place the batch otherwise
            self.blame([command], "takes what build refuses")
        if code == 1 and built == 0 and not any(word in message for word in NOT_YET):
            self.blame([command], f"refuses what build takes: {message}")


HELPLESS = collections.Counter()


def same_file(one, other):
    with open(one, encoding="utf-8") as a, open(other, encoding="utf-8") as b:
        return a.read() == b.read()


def try_text(trial, stub, cluster):
    """Compiles, prices and shows the plan; returns the exit code of `build` and its message."""
    bundle = trial.name + ".bundle"
    files = ["--plan", trial.plan]
    code, _, message = trial.call("build", trial.model, *files, "-o", bundle, "--quiet", "--data", ROOT, env=stub)
    if code == 0:
        again = trial.name + ".again"
        printed = bundle + "/plan.plan"
        if trial.call("build", trial.model, "--plan", printed, "-o", again, "--quiet", "--data", ROOT, env=stub)[0] != 0:
            trial.blame(["build"], "the plan of the bundle does not build")
        elif not same_file(printed, again + "/plan.plan"):
            trial.blame(["build"], "the plan of the bundle is printed otherwise")
        subprocess.run(["rm", "-rf", again], check=True)
    subprocess.run(["rm", "-rf", bundle], check=True)
    for command in (["simulate", trial.model, *files], ["show", trial.plan, "--model", trial.model]):
        end, _, why = trial.call(*command, "--cluster", cluster)
        trial.agree(command[0], end, why, code)
    found = trial.name + ".found"
    end, _, why = trial.call("plan", trial.model, *files, "--cluster", cluster, "--effort", "2", "-o", found, "--quiet")
    trial.agree("plan", end, why, code)
    if end == 0:
        if trial.call("simulate", trial.model, "--plan", found, "--cluster", cluster)[0] != 0:
            trial.blame(["simulate"], "refuses what plan prints")
        if trial.call("build", trial.model, "--plan", found, "-o", bundle, "--quiet", "--data", ROOT, env=stub)[0] != 0:
            trial.blame(["build"], "refuses what plan prints")
        subprocess.run(["rm", "-rf", bundle, found], check=True)
    return code, message


def try_verify(trial, built):
    code, out, message = trial.call("verify", trial.model, "--plan", trial.plan)
    trial.agree("verify", code, message, built)


def losses(out):
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return [row["loss"] for row in rows if "loss" in row and "step" in row], rows


def try_run(trial):
    words = ["run", trial.model, "--steps", "2", "--json", "--quick", "--data", ROOT]
    folder = trial.name + ".ckpt"
    code, out, _ = trial.call(*words, "--plan", trial.plan, "save=" + folder)
    subprocess.run(["rm", "-rf", folder, folder + "-best"], check=True)
    if code != 0:
        trial.blame(words, f"exit {code} of a plan that builds")
        return
    with open(trial.plan, encoding="utf-8") as file:
        text = file.read()
    if any(word in text for word in CHANGES):
        return
    with open(trial.model, encoding="utf-8") as file:
        bound = 3e-2 if "bf16" in file.read() else 1e-4
    plain, _ = losses(trial.call(*words, "--no-save")[1])
    mine, _ = losses(out)
    if len(mine) != 2 or any(abs(a - b) > bound * abs(b) for a, b in zip(mine, plain)):
        trial.blame(words, f"losses {mine}, of one rank {plain}")


def stub_compiler():
    """Returns an environment whose C compiler writes nothing of use, so that `dnnc build` is quick."""
    with open("stub-cc", "w", encoding="utf-8") as file:
        file.write('#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\n')
        file.write("[ -z \"${out:-}\" ] || printf '\\177ELF object\\n' >\"$out\"\n")
    os.chmod("stub-cc", 0o755)
    return dict(os.environ, CC=os.path.abspath("stub-cc"))


def main():
    dnnc, count = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    n_runs = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    with open(os.path.join(ROOT, "models/laptop.cluster"), encoding="utf-8") as file, open(
        "many.cluster", "w", encoding="utf-8"
    ) as many:
        many.write(file.read().replace("count = 2", "count = 64"))
    stub, ends, n_wrong = stub_compiler(), collections.Counter(), 0
    for number in range(count):
        rng = random.Random(seed * 1000003 + number)
        kind = rng.choice(kinds())
        name = f"features-{seed}-{number}"
        plan, model = name + ".plan", name + ".dnn"
        with open(plan, "w", encoding="utf-8") as file:
            file.write(plan_of(rng, kind))
        with open(model, "w", encoding="utf-8") as file:
            file.write(model_of(rng, kind))
        trial = Trial(dnnc, name, kind, plan, model)
        code, message = try_text(trial, stub, "many.cluster")
        try_verify(trial, code)
        if code == 0 and n_runs > 0:
            n_runs -= 1
            try_run(trial)
        ends["builds" if code == 0 else re.sub(r"'[^']*'|\d+", "_", message)[:120]] += 1
        if not trial.wrong:
            os.remove(plan)
            os.remove(model)
            continue
        n_wrong += 1
        print(f"WRONG {plan}:\n" + "\n".join(trial.wrong), flush=True)
    for end, n in ends.most_common():
        print(f"{n:5} {end}")
    for end, n in HELPLESS.most_common():
        print(f"no help {n:5} {end}")
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    main()

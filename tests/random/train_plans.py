"""train_plans.py DNNC COUNT [SEED [FIRST [MOCK]]]: random plans that combine features, on models of several kinds, trained.

A plan has some of: shards of the batch and of names, uneven ones too, micro-batches, stages with replicas, schedules,
versions of parameters, ZeRO, compression, islands, servers, offload, recomputation.  Its model (train_models.py) is drawn with
an optimizer, groups of parameters, averages, clipping, a loss scale, 16 bits, dropout.  A plan that builds

  - trains four steps with two evaluations as one rank does, if it says that it computes the same;
    else as the plan does that has only the lines which change what is computed;
  - touches the bytes of its arena that the compiler and `simulate` foretold, and no more;
  - stopped after step 2 and resumed it ends with the same bits;
  - resumed by one rank it ends as one rank does;
  - its evaluation and prediction of a checkpoint are those of one rank;
  - killed somewhere and resumed it ends as one rank does;
  - `verify` calls it equal, or says that it does not play it;
  - on the mock GPU, if MOCK is the library of tests/mock, its losses are those of the CPU.

The same count and seed give the same plans.  Plans that fail are left in the current folder.
"""

import collections
import csv
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

from train_models import ROOT, kinds

NOT_YET = ("not supported", "no such plan", "do not support", "does not support")
RATES = {
    "sgd(lr = 0.1, momentum = 0.9)": 1e-4,
    "sgd(lr = cosine(0.1, warmup = 2), nesterov = true, momentum = 0.5, decay = 0.01)": 1e-4,
    "adamw(lr = 0.003, decay = 0.1)": 1e-3,
    "adam(lr = wsd(0.003, warmup = 1))": 1e-3,
    "rmsprop(lr = 0.001)": 1e-3,
    "lamb(lr = 0.003)": 1e-3,
    "lars(lr = 0.1)": 1e-3,
    "adafactor(lr = 0.003)": 1e-3,
    "muon(lr = 0.003)": 3e-3,
}
KEPT = ("compress", "reduce", "schedule = pipedream", "schedule = 2bw", "microbatches", "stage", "cut", "sync = server")


def settings_of(rng, kind):
    """Returns lines of the train block, and a precision block."""
    lines = ["steps = 4"]
    if rng.random() < 0.2:
        lines.append("ema = 0.5")
    if rng.random() < 0.25:
        lines.append("clip = 0.5")
    if rng.random() < 0.15:
        lines.append("save_best = true")
    if rng.random() < 0.25:
        extra = rng.choice(["lr = 0.5x", "decay = 0", "lr = 0.5x; decay = 0.1"])
        lines.append(f"group {rng.choice(kind.matrices)} {{ {extra} }}")
    precision = ""
    if rng.random() < 0.2:
        words = ["compute = " + rng.choice(["bf16", "bf16", "f16"])]
        words += [f"loss_scale = {rng.choice(['dynamic', '128'])}"] if rng.random() < 0.5 else []
        words += ["grads = bf16"] if rng.random() < 0.2 else []
        precision = "precision { " + "; ".join(words) + " }\n"
    return lines, precision


def model_of(rng, kind):
    """Returns the text of a model and by how much its losses may differ."""
    lines, precision = settings_of(rng, kind)
    text = kind.text.replace("@SETTINGS@", "".join(f"  {line}\n" for line in lines))
    text = text.replace("@DROP@", rng.choice(["0", "0.1"])).replace("@GROUP@", "")
    optimizer = rng.choice(list(RATES) + ["sgd(lr = 0.1, momentum = 0.9)"] * 4)
    text = re.sub(r"  optimizer *= .*", lambda _: "  optimizer = " + optimizer, text)
    bound = RATES[optimizer]
    return text + precision, 5e-2 if precision else bound


def stage_lines(rng, kind):
    """Returns lines of stages, the axis of their groups or none, and how many ranks lines name."""
    cuts = [cut for cut in kind.stages if rng.random() < 0.6] or [kind.stages[0]]
    if len(cuts) == 1 and kind.layers and rng.random() < 0.4:
        first, second = rng.choice([(1, 1), (2, 1), (1, 2), (3, 1), (2, 2)])
        part = cuts[0]
        words = [" as (data = %d)" % n if n > 1 and rng.random() < 0.5 else "" for n in (first, second)]
        rest = kind.layers[-1]
        ranks = [f"0..{first - 1}" if first > 1 else "0", f"{first}..{first + second - 1}" if second > 1 else f"{first}"]
        if rest != part and not rest.startswith(part) and not part.startswith(rest):
            return [f"stage 0: {part} on {ranks[0]}{words[0]}", f"stage 1: {rest} on {ranks[1]}{words[1]}"], 0, first + second
    return [f"cut after {cut}" for cut in cuts], len(cuts) + 1, 0


def schedule_of(rng, n_stages):
    names = ["1f1b"] * 3 + ["gpipe", "fthenb", "naive", "zbh1", "zbh2", "pipedream", "pipedream(vertical = true)", "2bw", "2bw"]
    if n_stages == 4:
        names += ["interleaved(v = 2)", "bfs(v = 2)", "zbv", "zb1p(v = 2)", "dualpipev", "vhalf"] * 3
    return rng.choice(names)


def memory_lines(rng, kind):
    lines = []
    if rng.random() < 0.3:
        lines.append(f"zero = {rng.randint(1, 3)}")
    if rng.random() < 0.2:
        lines.append("compress = " + rng.choice(["bf16", "f16", "power(rank = 1)", "power(rank = 2)"]))
    if rng.random() < 0.3:
        names = [rng.choice(kind.layers)] if rng.random() < 0.6 else []
        names += [rng.choice(kind.matrices)] if rng.random() < 0.4 else []
        names += [rng.choice(["optimizer", "optimizer." + rng.choice(kind.matrices)])] if rng.random() < 0.6 else []
        lines += ["offload " + ", ".join(names)] if names else []
    if rng.random() < 0.25:
        lines.append(rng.choice(["remat ", "remat ", "keep "]) + rng.choice(kind.layers))
    if rng.random() < 0.2:
        lines.append("bucket = " + rng.choice(["1kB", "300B", "25MB"]))
    if rng.random() < 0.1:
        lines.append("prefetch = 1kB")
    if rng.random() < 0.1:
        lines.append("reduce = bf16")
    if rng.random() < 0.1:
        lines.append("attention = " + rng.choice(["ring", "ulysses"]))
    return lines


def pin_lines(rng, kind, axes):
    """Returns lines about parameters."""
    if not axes or rng.random() < 0.7:
        return []
    path, axis = rng.choice(kind.matrices), rng.choice(list(axes))
    if rng.random() < 0.15:
        return [f"replicate {path}"]
    what = rng.choice(["", "optimizer.", "grad."])
    return [f"shard {what}{path}: {rng.choice(kind.dims)} over {axis}"]


def place_lines(rng, kind, n):
    """Returns lines that put operators on other ranks than the first n."""
    words = [str(i) if n == 1 else f"{i * n}..{i * n + n - 1}" for i in (1, 2)]
    paths = rng.sample(kind.layers[1:], min(len(kind.layers) - 1, rng.randint(1, 2)))
    return [f"place {path} on {word}" for path, word in zip(paths, words)], (len(paths) + 1) * n


def plan_of(rng, kind):
    axes, n_ranks = {}, 1
    if rng.random() < 0.25:
        axes["island"] = 2
    if rng.random() < 0.6:
        axes["data"] = rng.choice([1, 2, 2, 3])
    if rng.random() < 0.3:
        axes["tensor"] = 2
    lines = memory_lines(rng, kind)
    micro = rng.choice([1, 1, 1, 2, 2, 3])
    if rng.random() < 0.45:
        made, groups, named = stage_lines(rng, kind)
        schedule = schedule_of(rng, groups)
        if re.match("interleaved|bfs|zbv|zb1p|dualpipev|vhalf", schedule):
            groups //= 2
        if groups:
            axes["pipe"] = groups
        lines += made + [f"schedule = {schedule}"]
        micro = 1 if schedule.startswith("pipedream") else max(micro, rng.choice([1, 2, 4]))
        if schedule.startswith("pipedream") or schedule == "2bw" or named:
            axes = {"pipe": groups} if groups else {}
        n_ranks = named or 1
    for size in axes.values():
        n_ranks *= size
    if not any(line.startswith(("cut", "stage")) for line in lines) and rng.random() < 0.12 and n_ranks < 4:
        made, n_ranks = place_lines(rng, kind, n_ranks)
        axes["pipe"] = n_ranks
        for name, size in axes.items():
            axes["pipe"] //= size if name != "pipe" else 1
        lines += made
    lines += pin_lines(rng, kind, [name for name in axes if name != "pipe"])
    if micro > 1:
        lines.append(f"microbatches = {micro}")
    if "tensor" in axes:
        if rng.random() < 0.2:
            lines.append(f"shard {rng.choice(kind.matrices)}: {rng.choice(kind.dims)} over tensor")
        else:
            lines.append("shard " + rng.choice(kind.dims) + " over tensor")
    if "island" in axes and rng.random() < 0.7:
        lines.append("sync = hierarchical over island")
    elif rng.random() < 0.15 and n_ranks < 6:
        n = rng.choice([1, 1, 2, 3])
        lines.append(f"sync = server(ranks = {n_ranks}..{n_ranks + n - 1}, staleness = {rng.choice(['0', '0', '0', '1', 'none'])})")
        n_ranks += n
    mesh = f"mesh {{ {'; '.join(f'{name} = {size}' for name, size in axes.items())} }}\n" if axes else ""
    if not axes and not any(line.startswith("stage") for line in lines):
        mesh = "mesh { data = 1 }\n"
    return mesh, lines, n_ranks


def text_of(mesh, lines):
    return mesh + "plan {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def is_close(a, b, bound):
    return abs(a - b) <= bound * max(abs(a), abs(b), 1e-3)


def listed(value):
    return value if isinstance(value, list) else [value]


def late(of_step):
    return {step: value for step, value in of_step.items() if step > 2}


def environment_of_ranks():
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return os.environ | {"OMP_NUM_THREADS": "1"} | root


def has_processes(folder):
    """Returns whether programs of the folder run."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/exe").startswith(folder + "/"):
                return True
        except OSError:
            pass  # it has ended
    return False


def rows_of(out):
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    losses = {row["step"]: row["loss"] for row in rows if "norm" in row}
    last = [row for row in rows if row.get("final")]
    checked = [row for row in rows if "validation_loss" in row and "norm" not in row and not row.get("final")]
    checks = {row["step"]: [row["validation_loss"], *row.get("metrics", {}).values()] for row in checked}
    return losses, checks, last[0] if last else {}


class Trial:
    """A model and a plan, in a folder of their own, and what went wrong."""

    def __init__(self, dnnc, name, plan, model, bound):
        self.dnnc, self.name, self.bound, self.wrong = dnnc, name, bound, []
        self.plan, self.model = plan, model
        self.text = text_of(*plan[:2])
        os.makedirs(name)
        self.write("a.plan", self.text)
        self.write("a.dnn", model)
        for i in range(3):
            shutil.copy(f"part-{i}.csv", os.path.join(name, f"part-{i}.csv"))

    def write(self, file, text):
        with open(os.path.join(self.name, file), "w", encoding="utf-8") as out:
            out.write(text)

    def blame(self, why):
        self.wrong.append(why)

    def call(self, words, folder=".", fails=False):
        """Runs a command in the folder; returns its exit code, output and errors.  `fails`: it may."""
        environment = environment_of_ranks() | {"DNN_POISON": "1"}
        folder = os.path.join(self.name, folder)
        os.makedirs(folder, exist_ok=True)
        try:
            run = subprocess.run(
                words, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=folder, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            self.blame(f"{' '.join(words)}: no end in 120 s")
            return -1, "", ""
        if run.returncode != 0 and not fails:
            self.blame(f"{' '.join(words)}: exit {run.returncode}: {run.stderr[-800:]}")
        return run.returncode, run.stdout, run.stderr

    def build(self, bundle, plan=None, fails=False):
        words = [self.dnnc, "build", "a.dnn", "-o", bundle, "--quiet", "--quick", "--data", ROOT]
        words += ["save_every=2", "save=a.ckpt"]
        return self.call(words + (["--plan", plan] if plan else []), fails=fails)

    def begin(self, rng):
        """Builds the plan; without a line that it refuses, up to three times."""
        for _ in range(4):
            code, _, err = self.build("bundle", "a.plan", fails=True)
            found = re.search(r"a\.plan:(\d+):", err)
            if code != 1 or not found or int(found.group(1)) < 2 + bool(self.plan[0]):
                return code, err
            REFUSED[re.sub(r"'[^']*'|\d+", "_", re.search(r"error: (.*)", err).group(1))[:120]] += 1
            line = int(found.group(1)) - 2 - bool(self.plan[0])
            if line >= len(self.plan[1]) or self.plan[1][line].startswith(("cut", "stage", "microbatches")):
                line = rng.randrange(len(self.plan[1]))
            del self.plan[1][line]
            self.text = text_of(*self.plan[:2])
            self.write("a.plan", self.text)
        return code, err

    def run(self, bundle, folder, *words):
        program = os.path.abspath(os.path.join(self.name, bundle, "run"))
        code, out, _ = self.call([program, "--json", "--data", ROOT, *words], folder)
        return rows_of(out) if code == 0 else ({}, {}, {})

    def compare(self, what, mine, wanted, bound):
        """Numbers by step, or lists of them."""
        if not mine or not wanted:
            return
        for step in sorted(set(mine) | set(wanted)):
            a, b = listed(mine.get(step)), listed(wanted.get(step))
            if len(a) != len(b) or any(x is None or y is None or not is_close(x, y, bound) for x, y in zip(a, b)):
                self.blame(f"{what}: {mine}, wanted {wanted}")
                return

    def reference_plan(self):
        """The lines that change what is computed, or none."""
        has_versions = any(line.startswith(("schedule = pipedream", "schedule = 2bw")) for line in self.plan[1])
        if not has_versions:
            return None
        lines = [line for line in self.plan[1] if line.startswith(KEPT)]
        return text_of(self.plan[0], lines)

    def is_loose(self):
        return "none)" in self.text or "staleness = 1" in self.text

    def bounds(self):
        if "power" in self.text:
            return None
        return max(self.bound, 5e-2) if re.search(r"(compress|reduce) = b?f16", self.text) else self.bound

    def trains(self):
        """The run of the plan beside the run of the reference."""
        reference = self.reference_plan()
        if reference:
            self.write("r.plan", reference)
        if self.build("reference", "r.plan" if reference else None)[0] != 0 or self.build("one")[0] != 0:
            return
        losses, checks, last = self.run("bundle", "first", "--steps", "4")
        wanted, wanted_checks, _ = self.run("reference", "reference-run", "--steps", "4")
        bound = self.bounds()
        if reference:
            bound = bound and 1e-4 if "bf16" not in self.model + self.text and "f16" not in self.model + self.text else 5e-2
        if bound and not self.is_loose():
            self.compare("losses", losses, wanted, bound)
            self.compare("evaluations", checks, wanted_checks, max(10 * bound, 1e-3))
        if not losses:
            return
        self.memory(last)
        self.resumes(losses, checks, last, wanted, reference, bound)

    def memory(self, last):
        touched, arena = last.get("arena_touched_bytes"), last.get("arena_bytes")
        if touched and max(touched) > max(arena):
            self.blame(f"touched {touched} of {arena}")
        if touched and touched != arena:
            UNTOUCHED[self.name] = f"touched {touched} of {arena}"
        words = [self.dnnc, "simulate", "a.dnn", "--plan", "a.plan", "--cluster", "../many.cluster", "--json"]
        code, out, err = self.call(words, fails=True)
        if code:
            if not any(word in err for word in NOT_YET):
                self.blame(f"simulate: {err[-600:]}")
            return
        priced = json.loads(out)
        peaks = {rank["peak_bytes"] for rank in priced["ranks"]}
        if peaks != set(arena) and max(peaks) != max(arena):
            self.blame(f"simulate: peaks {sorted(peaks)}, arenas {arena}")

    def resumes(self, losses, checks, last, wanted, reference, bound):
        """Stopped after step 2 and resumed, under the plan and by one rank."""
        self.run("bundle", "second", "--steps", "2")
        shutil.copytree(os.path.join(self.name, "second"), os.path.join(self.name, "third"), symlinks=True)
        again, again_checks, again_last = self.run("bundle", "second", "--steps", "4", "--resume")
        if not again:
            return
        if not self.is_loose():
            close = 1e-4 if "power" in self.text else 0
            self.compare("resumed losses", again, late(losses), close)
            self.compare("resumed evaluations", late(again_checks), late(checks), 10 * close)
            if not close and again_last.get("parameters_sha256") != last.get("parameters_sha256"):
                self.blame("resumed parameters have other bits")
        other, _, _ = self.run("one", "third", "--steps", "4", "--resume")
        if bound and not reference and not self.is_loose():
            self.compare("losses that one rank resumes", other, late(wanted), bound)
        self.evaluates("second/a.ckpt")
        if not reference and bound and not self.is_loose():
            self.is_killed()

    def is_killed(self):
        """A run that is killed behind its first save, and resumed, ends with the bits of one that is not."""
        words = [os.path.abspath(os.path.join(self.name, "bundle", "run")), "--quiet", "--data", ROOT, "--steps", "4000"]
        os.makedirs(os.path.join(self.name, "killed"))
        nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        run = subprocess.Popen(words, env=environment_of_ranks(), cwd=os.path.join(self.name, "killed"), **nothing)
        latest = os.path.join(self.name, "killed", "a.ckpt", "latest")
        for _ in range(2000):
            if os.path.exists(latest) or run.poll() is not None:
                break
            time.sleep(0.05)
        run.kill()
        run.wait()
        for _ in range(1000):
            if not has_processes(os.path.abspath(os.path.join(self.name, "bundle"))):
                break
            time.sleep(0.02)
        if not os.path.exists(latest):
            self.blame("no save in 100 s")
            return
        with open(latest, encoding="utf-8") as file:
            saved = int(re.search(r"step-0*(\d+)", file.read()).group(1))
        if saved > 200:
            return
        steps = str(saved + 2)
        _, _, last = self.run("bundle", "killed", "--steps", steps, "--resume")
        _, _, whole = self.run("bundle", "whole", "--steps", steps)
        sums = [row.get("parameters_sha256") for row in (last, whole)]
        if last and whole and "power" not in self.text and sums[0] != sums[1]:
            self.blame(f"killed at step {saved} and resumed: other bits")

    def mocks(self, mock):
        """Trains on the mock GPU."""
        words = [self.dnnc, "build", "a.dnn", "--plan", "a.plan", "-o", "gpu", "--quiet", "--data", ROOT]
        code, _, err = self.call(words + ["--target", "cuda", "--quick", "--keep-source"], fails=True)
        if code:
            if not any(word in err for word in NOT_YET):
                self.blame(f"build for a GPU: {err[-600:]}")
            return
        source = os.path.join(self.name, "gpu", "source")
        kernels, compiler = [], ["cc", "-std=gnu11", "-O0", "-ffp-contract=off", "-shared", "-fPIC", "-x", "c"]
        for file in sorted(os.listdir(source)):
            if not file.endswith(".cu") or file.startswith("plain_"):
                continue
            kernels.append(os.path.abspath(os.path.join(source, file[:-3] + ".so")))
            shim = "-I" + os.path.join(ROOT, "tests/shim")
            self.call(compiler + [shim, "-o", kernels[-1], os.path.abspath(os.path.join(source, file)), "-lm"])
        os.environ |= {"DNN_CUDA_LIB": mock, "DNN_CUBLASLT_LIB": mock, "DNN_NCCL_LIB": mock, "DNN_MOCK_KERNELS": ":".join(kernels)}
        losses, _, _ = self.run("gpu", "gpu-run", "--steps", "4", "--no-save")
        for name in ("DNN_CUDA_LIB", "DNN_CUBLASLT_LIB", "DNN_NCCL_LIB", "DNN_MOCK_KERNELS"):
            del os.environ[name]
        wanted, _, _ = self.run("bundle", "cpu-run", "--steps", "4", "--no-save")
        if not self.is_loose():
            self.compare("losses on the mock", losses, wanted, self.bounds() or 1e-3)

    def evaluates(self, checkpoint):
        words = ["a.dnn", "--load", checkpoint, "--quick", "--data", ROOT]
        found, rows = [], []
        for plan in (["--plan", "a.plan"], []):
            code, out, err = self.call([self.dnnc, "eval", *words, "--json", *plan], fails=bool(plan))
            if code and plan and any(word in err for word in NOT_YET):
                return
            if code and plan:
                self.blame(f"eval: {err[-600:]}")
            if code:
                return
            row = json.loads(out.splitlines()[-1])
            found.append({0: [row["validation_loss"], *row.get("metrics", {}).values()]})
            file = f"rows{len(rows)}.csv"
            value = ["--value", "tiny[1]"] if "return (unlike" in self.model else []
            code, _, err = self.call([self.dnnc, "predict", *words, "-o", file, "--quiet", *value, *plan], fails=bool(plan))
            if code and plan:
                if not any(word in err for word in NOT_YET):
                    self.blame(f"predict: {err[-600:]}")
                return
            if code:
                return
            with open(os.path.join(self.name, file), encoding="utf-8") as csv_file:
                rows.append([float(x) for row in csv.reader(csv_file) for x in row])
        is_half = "bf16" in self.model + self.text or "f16" in self.model + self.text
        self.compare("eval", found[0], found[1], 3e-2 if is_half else 1e-5)
        most = 0.3 if is_half else 1e-4
        if len(rows[0]) != len(rows[1]) or any(abs(a - b) > most * (1 + abs(b)) for a, b in zip(*rows)):
            self.blame("predictions differ")

    def verifies(self):
        """Returns what `verify` says."""
        code, out, err = self.call([self.dnnc, "verify", "a.dnn", "--plan", "a.plan", "--json"], fails=True)
        if code == 0:
            return "equal"
        if out.startswith("{"):
            self.blame(f"verify: {out[-900:]}")
            return "unequal"
        if not any(word in err for word in NOT_YET) and not self.is_loose():
            self.blame(f"verify: {err[-600:]}")
        return "refused"


UNTOUCHED = {}
REFUSED = collections.Counter()


def write_files():
    with gzip.open(os.path.join(ROOT, "data/inputs/uci-digits.csv.gz"), "rt") as file:
        rows = file.readlines()
    for i, (begin, end) in enumerate([(0, 17), (17, 61), (61, 75)]):
        with open(f"part-{i}.csv", "w", encoding="utf-8") as out:
            out.writelines(rows[begin:end])
    with open(os.path.join(ROOT, "models/laptop.cluster"), encoding="utf-8") as file:
        text = file.read()
    with open("many.cluster", "w", encoding="utf-8") as many:
        many.write(text.replace("count = 2", "count = 64"))


def main():
    dnnc, count = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    mock = os.path.abspath(sys.argv[5]) if len(sys.argv) > 5 else None
    write_files()
    ends, n_wrong = collections.Counter(), 0
    for number in range(first, first + count):
        rng = random.Random(seed * 1000003 + number)
        kind = rng.choice(kinds())
        plan = plan_of(rng, kind)
        model, bound = model_of(rng, kind)
        name = f"trained-{seed}-{number}"
        if plan[2] > 8:
            ends["too many ranks"] += 1
            continue
        trial = Trial(dnnc, name, plan, model, bound)
        code, err = trial.begin(rng)
        if code == 0:
            ends["verify: " + trial.verifies()] += 1
            trial.trains()
            if mock:
                trial.mocks(mock)
            ends[f"trained: {kind.name}"] += 1
        else:
            found = re.search(r"error: (.*)", err)
            ends[re.sub(r"'[^']*'|\d+", "_", found.group(1) if found else err[-200:])[:120]] += 1
            if "unexpected" in err:
                trial.blame(err)
            if code not in (1, 2):
                trial.blame(f"build: exit {code}: {err[-600:]}")
        if trial.wrong:
            n_wrong += 1
            print(f"WRONG {name} ({kind.name}):\n{trial.text}" + "\n".join(trial.wrong), flush=True)
            for made in os.listdir(name):
                if os.path.isdir(os.path.join(name, made)):
                    shutil.rmtree(os.path.join(name, made))
        else:
            shutil.rmtree(name)
    for end, n in ends.most_common():
        print(f"{n:5} {end}")
    for end, n in REFUSED.most_common():
        print(f"{n:5} refused: {end}")
    for name, why in UNTOUCHED.items():
        print(f"{name}: {why}")
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    main()

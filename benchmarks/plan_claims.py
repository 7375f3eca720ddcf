"""What must hold of plans that `dnnc plan` finds, as commands that can be repeated.

    python3 benchmarks/plan_claims.py models DNNC [MODEL ...]
    python3 benchmarks/plan_claims.py forms  DNNC [small] [FORM ...]
    python3 benchmarks/plan_claims.py memory DNNC [MODEL SIZE ... CLUSTER RANKS FROM TO STEP]
    python3 benchmarks/plan_claims.py text   DNNC [certificate] [stages] [ROW ...]
    python3 benchmarks/plan_claims.py losses DNNC [N [SEED]]
    python3 benchmarks/plan_claims.py refusals DNNC [N [SEED]]
    python3 benchmarks/plan_claims.py bytes  DNNC OTHER_DNNC [ROW ...]
    python3 benchmarks/plan_claims.py away   DNNC [ROW ...]
    python3 benchmarks/plan_claims.py methods DNNC [METHOD ...]
    python3 benchmarks/plan_claims.py random DNNC N SEED FILE [ROW ...]

models    Each model of `dnnc list models` gets a plan on `laptop` and on 8 ranks
          of `h100x256` within 60 s, or exit 2 with the bytes that it needs.
forms     A model written in another form, with the same computation, gets a plan
          with the same step in at most 1.5 times the processor time.  `small`:
          short models, of which the step alone is compared.
memory    With more memory a step takes no longer, and the peak is within the
          limit; where nothing fits, the bytes are named.
text      A plan that is printed, read and printed is the same text; as pins it
          plans to the same step, and its final graph has the same text; it has
          fewer than 100 lines, and `verify` says that the program computes what
          one rank does.  With `certificate` it checks the certificate alone
          and plays nothing.  With `stages` plans are searched with stages, on
          CNNs and clusters of one and several kinds of devices, too.
losses    The loss that `explain` prints for an alternative is what `plan` with
          that pin returns, for N random alternatives.
refusals  Where pins and limits leave no plan, there is one without any one of
          those that are named, and each change that is named leads to one.
bytes     Two builds of the compiler, and one and two threads, print equal plans.
away      A compiler that is copied to an empty folder with the models, without
          the written plans, prints equal plans.
methods   Where a published method is the known answer, the plan that is found is
          at least as fast as the written plans of the method on any mesh and
          with any micro-batches, and by which terms it differs.
random    No step of N random plans of a row, at full size, is below the bound of
          its certificate: random lines about names, and lines of the found plan
          with some left out or with other axes.  FILE keeps a line for each
          plan, and a later run goes on after its last one.

Exit status 1: something does not hold.  A row of bench_plan.py is a model on
some ranks of a cluster.
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

from bench_plan import (ROOT, ROWS, command, fastest_microbatches, meshes, run,
                        simulated)

MOST_SECONDS = 60


def first_line(text):
    return text.splitlines()[0] if text else ""


def lines_of_plan(text):
    """The plan without its certificate."""
    return text.split("\ncertificate {")[0].rstrip() + "\n"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# ---- models ----

def models(dnnc, names):
    listed = subprocess.run([dnnc, "list", "models"], capture_output=True,
                            text=True, check=True).stdout.splitlines()[1:]
    paths = [line.split()[0] for line in listed]
    found = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    is_good = True
    for name in names or [name for name in found if name != "lib"]:
        for cluster, ranks in (("laptop", None), ("h100x256", 8)):
            row = (name, [], cluster, ranks)
            done, cpu, wall = run(command(dnnc, "plan", row, "--json",
                                          "--quiet"))
            words = ""
            if done.returncode == 0:
                price = json.loads(done.stdout)
                words = (f"{price['step_s'] * 1e3:.3f} ms, "
                         f"{price['candidates']} plans, {price['words']}")
                holds = price["fits"]
            else:
                words = first_line(done.stderr)
                holds = done.returncode == 2 and "B are missing" in words
            holds &= cpu <= MOST_SECONDS
            is_good &= holds
            print(f"{name:14} {cluster:9} {cpu:6.1f} s {wall:6.1f} s  {words}"
                  f"{'' if holds else '  FAULT'}", flush=True)
    return is_good


# ---- forms ----

def written_out(text, sizes):
    """Each block of a repeat as a statement of its own."""
    match = re.search(r"^( *)repeat \w+ in (\w+) \{ *(.*?) *\}.*\n", text,
                      re.M)
    times = int(sizes[match[2]])
    return (text[:match.start()] + f"{match[1]}{match[3]}\n" * times +
            text[match.end():])


def renamed(text, _sizes):
    for name in re.findall(r"^layer (\w+)", text, re.M):
        text = re.sub(rf"\b{name}\b", f"{name[::-1]}_of_mine", text)
    return text


def reordered(text, _sizes):
    """Dims from the last to the first, but each after those that it needs."""
    items = []
    for line in re.findall(r"^dim (.*?) *(?:#.*)?$", text, re.M):
        items += re.split(r", *", line)
    text = re.sub(r"^dim .*\n", "", text, flags=re.M)
    names = [re.split(r" *= *", item)[0] for item in items]
    order = []

    def add(i):
        for k, name in enumerate(names):
            if k != i and re.search(rf"\b{name}\b", items[i].split("=")[1]):
                add(k)
        if i not in order:
            order.append(i)

    for i in reversed(range(len(items))):
        add(i)
    dims = "".join(f"dim {items[i]}\n" for i in order)
    at = re.search(r"^layer ", text, re.M).start()
    return text[:at] + dims + "\n" + text[at:]


def alternating(text, sizes):
    """Every other block has another name."""
    layer = re.search(r"^layer block\(.*?^\}\n", text, re.M | re.S)[0]
    other = layer.replace("layer block(", "layer brick(", 1)
    match = re.search(r"^( *)repeat (\w+) in (\w+) \{ *(.*?) *\}.*\n", text,
                      re.M)
    half = int(sizes[match[3]]) // 2
    second = match[4].replace("block(", "brick(")
    text = (text[:match.start()] +
            f"{match[1]}repeat {match[2]} in {half} {{\n{match[1]}  {match[4]}"
            f"\n{match[1]}  {second}\n{match[1]}}}\n" + text[match.end():])
    return text.replace(layer, layer + "\n" + other)


FORMS = {"written out": written_out, "layers renamed": renamed,
         "dims reordered": reordered, "two names": alternating}
FORM_CASES = (("gpt2", [], "h100x256", 8), ("vit", [], "pipedream-a", 16))
SMALL_FORM_CASES = (
    ("gpt2", ["L=4", "B=16", "T=64", "C=256", "H=4", "V=1000"], "h100x256", 8),
    ("vit", ["L=4", "B=64", "C=96", "H=4", "side=64"], "pipedream-a", 16))
MOST_TIMES = 1.5


def sizes_of(text, overrides):
    sizes = {}
    for line in re.findall(r"^dim (.*?) *(?:#.*)?$", text, re.M):
        for item in re.split(r", *", line):
            if "=" in item:
                name, value = re.split(r" *= *", item)
                sizes[name] = value
    sizes.update(item.split("=") for item in overrides)
    return sizes


def plan_of_text(dnnc, text, row, folder, options=()):
    """Plans a model that is given as text; it lies beside its imports."""
    _, sizes, cluster, ranks = row
    for name in ("lib", "llama"):
        write(os.path.join(folder, f"{name}.dnn"),
              read(os.path.join(ROOT, f"models/{name}.dnn")))
    path = os.path.join(folder, "form.dnn")
    write(path, text)
    cluster = os.path.join(ROOT, f"models/{cluster}.cluster")
    return run([dnnc, "plan", path, *sizes, "--cluster", cluster, "--ranks",
                str(ranks), "--json", "--quiet", *options])


def forms_of(dnnc, row, names, most_times):
    model, overrides, cluster, ranks = row
    text = read(os.path.join(ROOT, f"models/{model}.dnn"))
    sizes = sizes_of(text, overrides)
    is_good, first = True, None
    for name in ["as it is"] + names:
        form = text if name == "as it is" else FORMS[name](text, sizes)
        with tempfile.TemporaryDirectory() as folder:
            done, cpu, _ = plan_of_text(dnnc, form, row, folder)
        if done.returncode != 0:
            print(f"{model} on {ranks} of {cluster}, {name}: exit "
                  f"{done.returncode}: {first_line(done.stderr)}  FAULT")
            is_good = False
            continue
        price = json.loads(done.stdout)
        first = first or (price["step_s"], cpu)
        fault = ""
        if price["step_s"] != first[0]:
            fault += "  FAULT: another step"
        if cpu > most_times * first[1]:
            fault += "  FAULT: more processor time"
        is_good &= not fault
        print(f"{model} on {ranks} of {cluster}, {name:14} "
              f"{price['step_s'] * 1e3:12.6f} ms {cpu:6.2f} s "
              f"{cpu / first[1]:5.2f} x  {price['words']}{fault}", flush=True)
    return is_good


def forms(dnnc, words):
    is_small = "small" in words
    names = [word for word in words if word != "small"] or list(FORMS)
    most_times = float("inf") if is_small else MOST_TIMES
    return all([forms_of(dnnc, row, names, most_times)
                for row in (SMALL_FORM_CASES if is_small else FORM_CASES)])


# ---- memory ----

def sweep(dnnc, row, limits):
    """Steps under rising limits of the memory of a device, in MiB."""
    is_good, last = True, None
    for limit in limits:
        done, cpu, _ = run(command(dnnc, "plan", row, "--json", "--quiet",
                                   "--what-if", f"memory={limit}MiB"))
        fault, words, step = "", "", float("inf")
        if done.returncode == 0:
            price = json.loads(done.stdout)
            step = price["step_s"]
            words = (f"{step * 1e3:12.3f} ms {price['peak_bytes'] / 2**20:9.1f} "
                     f"MiB  {price['words']}")
            if price["peak_bytes"] > limit * 2**20 or not price["fits"]:
                fault += "  FAULT: above the limit"
        else:
            words = f"exit {done.returncode}: {first_line(done.stderr)}"
            if done.returncode != 2 or "B are missing" not in words:
                fault += "  FAULT: no bytes"
        if last is not None and step > last:
            fault += "  FAULT: slower with more memory"
        last = step if last is None else min(last, step)
        is_good &= not fault
        print(f"{row[0]} in {limit:6} MiB  {cpu:6.1f} s  {words}{fault}",
              flush=True)
    return is_good


def memory(dnnc, words):
    if words:
        model, *sizes, cluster, ranks, begin, end, step = words
        return sweep(dnnc, (model, sizes, cluster, int(ranks)),
                     range(int(begin), int(end) + 1, int(step)))
    is_good = sweep(dnnc, ROWS["llama-8"],
                    [1024 * gib for gib in range(24, 81, 4)])
    name = "llama70b-32"
    model, sizes, cluster, _ = ROWS[name]
    done, cpu, _ = run(command(dnnc, "plan", (model, sizes, cluster, 8)))
    holds = (done.returncode == 2 and not done.stdout and
             "B are missing" in first_line(done.stderr))
    print(f"LLaMA 70B on 8: exit {done.returncode} in {cpu:.1f} s: "
          f"{first_line(done.stderr)}{'' if holds else '  FAULT'}")
    return is_good and holds


# ---- text ----

MOST_LINES = 100


STAGED_ROWS = {f"{name}-{cluster}": (name, [], cluster, None)
               for name in ("alexnet", "vgg16", "resnet50", "inception_v3",
                            "googlenet")
               for cluster in ("pipedream-a", "pipedream-b", "pipedream-c",
                               "mixed", "islands")}
STAGED_ROWS["gpt3-64"] = ROWS["gpt3-64"]


def final_program(dnnc, row, plan):
    """The graphs of all stages, and what each rank executes."""
    model, sizes, _, _ = row
    words = [dnnc, "ir", os.path.join(ROOT, f"models/{model}.dnn"), *sizes,
             "--plan", plan]
    shown = [run(words + more)[0] for more in (["--after=list_schedule"],
                                               ["--instructions"])]
    if any(done.returncode != 0 for done in shown):
        return None
    return "".join(done.stdout for done in shown)


def text_of(dnnc, name, row, folder, search, options):
    plan = os.path.join(folder, "found.plan")
    again = os.path.join(folder, "again.plan")
    faults = []
    done, cpu, _ = run(command(dnnc, "plan", row, *search, "--json", "--quiet",
                               "-o", plan))
    if done.returncode != 0:
        print(f"{name:24} exit {done.returncode}  FAULT")
        return False
    step, words = (json.loads(done.stdout)[key] for key in ("step_s", "words"))
    # One plan is priced: the pins, which say all of it.
    one, _, _ = run(command(dnnc, "plan", row, "--plan", plan, "--effort", "1",
                            "--quiet", "-o", again))
    if one.returncode != 0:
        faults.append(f"read: {first_line(one.stderr)}")
    elif lines_of_plan(read(plan)) != lines_of_plan(read(again)):
        faults.append("another text")
    else:
        program = final_program(dnnc, row, plan)
        if not program or program != final_program(dnnc, row, again):
            faults.append("another program")
    pinned, pinned_cpu, _ = run(command(dnnc, "plan", row, *search, "--plan",
                                        plan, "--json", "--quiet"))
    pinned_step = (json.loads(pinned.stdout)["step_s"]
                   if pinned.returncode == 0 else float("nan"))
    if pinned_step != step:
        faults.append(f"as pins {pinned_step * 1e3:.3f} ms")
    n_lines = len(read(plan).splitlines())
    if n_lines >= MOST_LINES:
        faults.append(f"{n_lines} lines")
    verified, verify_cpu, _ = run(command(dnnc, "verify", row, "--plan", plan,
                                          "--json", *options))
    answer = (json.loads(verified.stdout) if verified.stdout.startswith("{")
              else {})
    if not (answer.get("equal") or options) or not answer.get("certificate_ok"):
        faults.append("verify: " + first_line(verified.stderr or
                                              verified.stdout))
    print(f"{name:24} {step * 1e3:12.3f} ms {cpu:6.1f} s, as pins "
          f"{pinned_cpu:6.1f} s, {n_lines:3} lines, verify {verify_cpu:6.1f} s"
          f"{'  ' + words if search else ''}"
          f"{'  FAULT: ' if faults else ''}{'; '.join(faults)}", flush=True)
    return not faults


def text(dnnc, names):
    is_good = True
    options = ["--certificate"] if "certificate" in names else []
    search = ["--search", "stages"] if "stages" in names else []
    rows = {**ROWS, **STAGED_ROWS}
    asked = [name for name in names if name not in ("certificate", "stages")]
    for name in asked or list(STAGED_ROWS if search else ROWS):
        with tempfile.TemporaryDirectory() as folder:
            is_good &= text_of(dnnc, name, rows[name], folder, search, options)
    return is_good


# ---- losses ----

LOSS_CASES = (("chargpt", ["L=2", "B=16"], "pipedream-a", 4),
              ("charmoe", ["L=1", "B=16"], "h100x256", 4),
              ("mlp", [], "pipedream-a", 4),
              ("vit_digits", [], "pipedream-b", 8),
              ("lenet", [], "laptop", 2))
LOSS_EFFORT = 30


def loss_of(dnnc, row, path, folder, choose):
    """Explains one subject; one of its alternatives is searched by hand."""
    plan = os.path.join(folder, "found.plan")
    done, _, _ = run(command(dnnc, "explain", row, path, "--plan", plan,
                             "--effort", str(LOSS_EFFORT), "--lines", "2",
                             "--json"))
    if done.returncode != 0:
        return f"explain: {first_line(done.stderr)}"
    report = json.loads(done.stdout)
    searched = [one for one in report["alternatives"] if one["searched"]]
    if not searched:
        return None
    one = choose.choice(searched)
    pin = os.path.join(folder, "pin.plan")
    write(pin, one["pins"])
    found, _, _ = run(command(dnnc, "plan", row, "--plan", pin, "--effort",
                              str(report["effort"]), "--json", "--quiet"))
    if ("step_s" in one) != (found.returncode == 0):
        return f"{one['pin']}: exit {found.returncode}"
    if found.returncode != 0:
        return f"{one['pin']}: no plan for either"
    step = json.loads(found.stdout)["step_s"]
    is_equal = (step == one["step_s"] and
                abs(one["loss_s"] - (step - report["step_s"])) < 1e-11)
    return (f"{one['pin']}: {one['loss_s'] * 1e3:+.3f} ms"
            f"{'' if is_equal else '  FAULT'}")


SETTINGS = ("zero", "microbatches", "mesh", "bucket", "prefetch", "attention")


def losses(dnnc, words):
    most = int(words[0]) if words else 30
    choose = random.Random(int(words[1]) if len(words) > 1 else 1)
    n, is_good = 0, True
    while n < most:
        row = choose.choice(LOSS_CASES)
        with tempfile.TemporaryDirectory() as folder:
            run(command(dnnc, "plan", row, "--effort", str(LOSS_EFFORT), "-o",
                        os.path.join(folder, "found.plan"), "--quiet"))
            listed = subprocess.run(
                command(dnnc, "check", row, "--parameters")[:3] + row[1] +
                ["--parameters"], capture_output=True, text=True, check=True)
            paths = re.findall(r"^([\w.\[\]]+) +\w+\[", listed.stdout, re.M)
            path = choose.choice(SETTINGS + tuple(paths))
            said = loss_of(dnnc, row, path, folder, choose)
        if said is None:
            continue
        n += 1
        is_good &= "FAULT" not in said and not said.startswith("explain")
        print(f"{row[0]:10} {path:24} {said}", flush=True)
    return is_good


# ---- refusals ----

REFUSAL_MODEL = ("chargpt", ["L=2", "B=16", "T=8", "C=256"], "pipedream-a",
                 None)
REFUSAL_LINES = ("bucket = 25MB", "prefetch = 5MB", "zero = 0", "zero = 1",
                 "microbatches = 4", "microbatches = 16", "keep block",
                 "remat block", "attention = gather")
REFUSAL_MESH_LINES = ("shard B over a", "shard F over b", "shard H over b",
                      "shard C over a", "shard F over a",
                      "shard block[0].mlp!dot[0]: F over a",
                      "shard block[0].mlp.gelu: F over b",
                      "shard block[1].attn!dot[0]: B over none",
                      "replicate wte")
REFUSAL_EFFORT = "24"


def write_lines(path, lines):
    """`mesh { ... }` is a block, other lines are of the plan."""
    blocks = [line for line in lines if line.startswith("mesh")]
    blocks += ["plan {"]
    blocks += [line for line in lines if not line.startswith("mesh")] + ["}"]
    write(path, "\n".join(block.replace("; ", "\n")
                          for block in blocks) + "\n")


def without(options, lines, member):
    """A line that names an axis goes with the mesh."""
    if member.startswith("--"):
        words = member.split()
        at = options.index(words[0])
        return options[:at] + options[at + len(words):], lines
    kept = [line for line in lines if line != member]
    if member.startswith("mesh"):
        kept = [line for line in kept if " over a" not in line and
                " over b" not in line]
    return options, kept


def plan_with(dnnc, options, lines, folder, *more):
    path = os.path.join(folder, "pins.plan")
    write_lines(path, lines)
    done, _, _ = run(command(dnnc, "plan", REFUSAL_MODEL, "--effort",
                             REFUSAL_EFFORT, "--plan", path, "--json",
                             *options, *more))
    return done


def is_limit(member):
    return re.match("memory|--what-if memory|--ranks|[0-9].* of memory of",
                    member)


def faults_of_refusal(dnnc, options, lines, report, folder, is_each_enough):
    members = [member["text"] for member in report["conflict"]]
    faults = []
    for member in members:
        if is_limit(member) or not is_each_enough:
            continue  # the changes say how much more is needed
        done = plan_with(dnnc, *without(options, lines, member), folder)
        if done.returncode != 0:
            faults.append(f"no plan without '{member}'")
    for change in report["relaxations"]:
        now_options, now = options, lines
        for member in change["drop"]:
            now_options, now = without(now_options, now, member)
        for member in change["add"]:
            if member.startswith("--"):
                now_options = now_options + member.split()
            else:
                now = now + [member]
        done = plan_with(dnnc, now_options, now, folder)
        step = json.loads(done.stdout)["step_s"] if done.returncode == 0 else 0
        if step != change["step_s"]:
            faults.append(f"'{change['change']}': {step} s, not "
                          f"{change['step_s']} s")
    if not report["relaxations"]:
        faults.append("no change is named")
    return faults


def random_pins(choose):
    lines = choose.sample(REFUSAL_LINES, choose.randint(1, 3))
    lines = [line for i, line in enumerate(lines)
             if line.split()[0] not in [k.split()[0] for k in lines[:i]]]
    options = []
    if choose.random() < 0.6:
        sizes = choose.choice(((2, 2), (4, 1), (1, 4), (2, 4)))
        lines.append(f"mesh {{ a = {sizes[0]}; b = {sizes[1]} }}")
        lines += choose.sample(REFUSAL_MESH_LINES, choose.randint(0, 3))
    else:
        options += ["--ranks", choose.choice(("1", "2", "4"))]
    limit = choose.choice((3, 5, 8, 12))
    if choose.random() < 0.5:
        lines.append(f"memory = {limit}MB")
    else:
        options += ["--what-if", f"memory={limit + 400}MB"]
    return options, lines


def refusals(dnnc, words):
    most = int(words[0]) if words else 20
    choose = random.Random(int(words[1]) if len(words) > 1 else 1)
    n, is_good = 0, True
    while n < most:
        options, lines = random_pins(choose)
        with tempfile.TemporaryDirectory() as folder:
            done = plan_with(dnnc, options, lines, folder)
            if done.returncode == 0 or not done.stdout.startswith("{"):
                continue
            report = json.loads(done.stdout)
            if not report.get("conflict"):
                continue
            last_help = done.stderr.split("help: ")[-1].split("\n")[0]
            faults = faults_of_refusal(dnnc, options, lines, report, folder,
                                       "without" in last_help)
        n += 1
        is_good &= not faults
        print(f"exit {done.returncode}, {len(report['conflict'])} in conflict, "
              f"{len(report['relaxations'])} changes: {' '.join(options)} "
              f"{' | '.join(lines)}{'  FAULT: ' if faults else ''}"
              f"{'; '.join(faults)}", flush=True)
    return is_good


# ---- bytes ----

def plan_bytes(words, dnnc, row):
    done, _, _ = run(words + command(dnnc, "plan", row, "--quiet"))
    return done.stdout


def same_bytes(dnnc, names):
    other, rows = os.path.abspath(names[0]), names[1:]
    is_good = True
    for name in rows or ("alexnet-pipedream-a", "bert-h100x256"):
        row = ROWS[name]
        first = plan_bytes([], dnnc, row)
        for said, words, binary in (
                ("one thread", ["taskset", "-c", "0"], dnnc),
                ("other build", [], other)):
            is_equal = first != "" and plan_bytes(words, binary, row) == first
            is_good &= is_equal
            print(f"{name:24} {said:12} {'equal' if is_equal else 'FAULT'}",
                  flush=True)
    return is_good


# ---- away ----

def away(dnnc, names):
    """Both run in a folder with models, so that certificates name the same."""
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join(ROOT, "models"),
                        os.path.join(folder, "models"))
        copy = shutil.copy(dnnc, os.path.join(folder, "dnnc"))
        for name in names or list(ROWS):
            words = command(dnnc, "plan", ROWS[name], "--quiet")
            words = [os.path.relpath(word, ROOT) if word.startswith(ROOT + "/")
                     else word for word in words[1:]]
            here, _, _ = run([dnnc, *words], cwd=ROOT)
            there, _, _ = run([copy, *words], cwd=folder)
            is_equal = here.stdout != "" and here.stdout == there.stdout
            is_good &= is_equal
            print(f"{name:24} {'equal' if is_equal else 'FAULT'}", flush=True)
    return is_good


# ---- methods ----

METHODS = {
    "one-weird-trick": (("alexnet", [], "pipedream-a", 16),
                        ("--what-if", "link.network=1Gb/s"),
                        ("one_weird_trick",)),
    "tensor": (ROWS["gpt3-64"], (), ("gpt3", "sequence", "tensor",
                                     "sequence_zero3", "tensor_zero3")),
    "zero3": (ROWS["llama-8"], (), ("zero3", "zero3_microbatches",
                                    "sequence_zero3", "remat_zero3")),
    "experts": (ROWS["moe-64"], (), ("experts", "experts_data", "experts_only",
                                     "experts_microbatches",
                                     "experts_tensor"))}


def best_written(dnnc, row, options, names, folder):
    """The fastest of these plans: its step, name and text, or None."""
    path, best = os.path.join(folder, "written.plan"), None
    for name in names:
        text = read(os.path.join(ROOT, f"benchmarks/plans/{name}.plan"))
        for sizes, scaled in meshes(text, row[3]):
            write(path, scaled)
            price = fastest_microbatches(dnnc, row, path, *options)
            if price and (not best or price[0] < best[0]):
                shape = "x".join(map(str, sizes))
                best = price[0], f"{name}, {shape}-{price[1]}", scaled, price[1]
    return best


def with_microbatches(text, n):
    text = re.sub(r"^ *microbatches *=.*\n", "", text, flags=re.M)
    return re.sub(r"^plan .*\{", rf"\g<0>\n  microbatches = {n}", text, count=1,
                  flags=re.M)


def method(dnnc, name, folder):
    row, options, names = METHODS[name]
    found = os.path.join(folder, "found.plan")
    written = os.path.join(folder, "best.plan")
    done, _, _ = run(command(dnnc, "plan", row, *options, "--json", "--quiet",
                             "-o", found))
    if done.returncode != 0:
        print(f"{name:16} exit {done.returncode}  FAULT", flush=True)
        return False
    price = json.loads(done.stdout)
    best = best_written(dnnc, row, options, names, folder)
    holds = not best or price["step_s"] <= best[0]
    shown = f"{best[0] * 1e3:.3f} ms ({best[1]})" if best else "none fits"
    print(f"{name:16} {price['step_s'] * 1e3:.3f} ms, {price['words']}; "
          f"written {shown}{'' if holds else '  FAULT'}", flush=True)
    if best:
        write(written, with_microbatches(best[2], best[3]))
        model, sizes, cluster, _ = row
        diff, _, _ = run([dnnc, "diff", written, found, *sizes, "--model",
                          os.path.join(ROOT, f"models/{model}.dnn"),
                          "--cluster",
                          os.path.join(ROOT, f"models/{cluster}.cluster"),
                          *options])
        print("".join(f"    {line}\n" for line in
                      (diff.stdout or diff.stderr).splitlines()[:24]),
              flush=True)
    return holds


def methods(dnnc, names):
    is_good = True
    for name in names or list(METHODS):
        with tempfile.TemporaryDirectory() as folder:
            is_good &= method(dnnc, name, folder)
    return is_good


# ---- random ----

def random_mesh(choose, ranks):
    outer = choose.choice([n for n in range(1, ranks + 1) if ranks % n == 0])
    sizes = [n for n in (outer, ranks // outer) if n > 1] or [1]
    return [(f"m{i}", size) for i, size in enumerate(sizes)]


def random_names(choose, text, ranks):
    """Lines about names; the batch gets what is left."""
    axes = random_mesh(choose, ranks)
    dims = sorted(set(re.findall(r"\b[A-Z]\b", text)))
    lines = [f"microbatches = {1 << choose.randint(0, 5)}",
             f"zero = {choose.randint(0, 3)}"]
    for name, _ in axes:
        if choose.random() < 0.6:
            some = choose.sample(dims, min(len(dims), choose.randint(1, 3)))
            lines.append(f"shard {', '.join(some)} over {name}")
    if choose.random() < 0.3:
        lines.append("remat block")
    mesh = "".join(f"  {name} = {size}\n" for name, size in axes)
    body = "".join(f"  {line}\n" for line in lines)
    return f"mesh {{\n{mesh}}}\n\nplan {{\n{body}}}\n"


def changed_lines(choose, found):
    """The found plan, some lines of which are left out or have other axes."""
    axes = re.findall(r"^  (\w+) += \d+$", found.split("}")[0], re.M)
    lines = found.splitlines()
    at = [i for i, line in enumerate(lines)
          if re.match(r"  (shard|replicate|zero|microbatches|remat)", line)]
    for i in choose.sample(at, min(len(at), choose.randint(1, 4))):
        over = re.search(r"over (\w+|\([\w, ]+\))", lines[i])
        if over and choose.random() < 0.5:
            lines[i] = (lines[i][:over.start()] +
                        f"over {choose.choice(axes)}" + lines[i][over.end():])
        elif lines[i].startswith("  microbatches"):
            lines[i] = f"  microbatches = {1 << choose.randint(0, 6)}"
        elif lines[i].startswith("  zero"):
            lines[i] = f"  zero = {choose.randint(0, 3)}"
        else:
            lines[i] = ""
    return "\n".join(lines) + "\n"


def random_plan(row, found, ranks, seed):
    choose = random.Random(seed)
    if choose.random() < 0.5:
        return changed_lines(choose, lines_of_plan(found))
    model = read(os.path.join(ROOT, f"models/{row[0]}.dnn"))
    return random_names(choose, model, ranks)


def kept_rows(path):
    """What an earlier run found out: by row and seed."""
    if not os.path.exists(path):
        return {}
    rows = [line.split() for line in read(path).splitlines()]
    return {(row[0], int(row[1])): (row[2], float(row[3])) for row in rows}


def random_of(dnnc, name, n, seed, file, folder):
    row, kept = ROWS[name], kept_rows(file)
    plan = os.path.join(folder, "found.plan")
    path = os.path.join(folder, "random.plan")
    done, _, _ = run(command(dnnc, "plan", row, "--json", "--quiet", "-o",
                             plan))
    price = json.loads(done.stdout) if done.returncode == 0 else {}
    if "bound_s" not in price:
        print(f"{name:24} no bound: {price.get('no_bound', done.stderr)}")
        return False
    ranks = sum(of["ranks"] for of in price["ranks"])
    found, fit, best = read(plan), 0, float("inf")
    n_legal, below = 0, []
    for i in range(seed, seed + n):
        if (name, i) not in kept:
            write(path, random_plan(row, found, ranks, i))
            made = simulated(dnnc, row, path)
            said = ("refused", 0.0) if not made else (
                "fits" if made["fits"] else "large", made["step_s"])
            kept[name, i] = said
            with open(file, "a", encoding="utf-8") as out:
                out.write(f"{name} {i} {said[0]} {said[1]!r}\n")
        state, step = kept[name, i]
        n_legal += state != "refused"
        if state != "fits":
            continue
        fit += 1
        best = min(best, step)
        if step < price["bound_s"]:
            below.append(i)
    print(f"{name:24} {n} plans, {n_legal} legal, {fit} fit, the fastest at "
          f"{best / price['bound_s']:.4f} of the bound, the found one at "
          f"{price['step_s'] / price['bound_s']:.4f}"
          f"{'  FAULT: below the bound: ' if below else ''}"
          f"{', '.join(map(str, below[:10]))}", flush=True)
    return not below


def random_plans(dnnc, words):
    if len(words) < 3:
        sys.exit(__doc__)
    n, seed, file = int(words[0]), int(words[1]), words[2]
    is_good = True
    for name in words[3:] or list(ROWS):
        with tempfile.TemporaryDirectory() as folder:
            is_good &= random_of(dnnc, name, n, seed, file, folder)
    return is_good


COMMANDS = {"models": models, "forms": forms, "memory": memory, "text": text,
            "losses": losses, "refusals": refusals, "bytes": same_bytes,
            "away": away, "methods": methods, "random": random_plans}


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    sys.exit(not COMMANDS[sys.argv[1]](os.path.abspath(sys.argv[2]),
                                       sys.argv[3:]))


if __name__ == "__main__":
    main()

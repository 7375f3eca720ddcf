"""Pins about stages of `dnnc plan`: kept, or refused with a reason.

    stage_pins.py files                        writes the models and clusters of the cases
    stage_pins.py refusals DNNC GOLDEN         compares the messages (DNNC_BLESS=1 writes them)
    stage_pins.py kept DNNC                    what is found has each pin of a list
    stage_pins.py again DNNC                   what is found plans again, as pins, to the same program;
                                               so does what says all about stages that no search takes
    stage_pins.py conflicts DNNC               without any member of a conflict there is a plan
    stage_pins.py drops DNNC [--seed S] [--cases N] [--from K]
                                               likewise of N random conflicts
    stage_pins.py random DNNC [--seed S] [--cases N] [--from K]
                                               N cases from case K on, by seed S
"""
import argparse
import os
import random
import re
import subprocess
import sys

MODEL = """dim B = {batch}, C = 64, K = 8
layer linear[I -> O](x: [..., I]) -> [..., O] {{
  param w: [I, O] = he_uniform(I)
  return relu(dot(x, w, I))
}}
net deep(x: [B, C]) -> [B, K] {{
  param head: [C, K] = he_uniform(64)
  repeat i in 8 {{ x = linear[C -> C](x) }}
  return dot(x, head, C)
}}
data d {{ x: [B, C] = synthetic(); y: i32[B] = synthetic(K) }}
train {{ loss = cross_entropy(deep(d.x), d.y, K); optimizer = {optimizer}; steps = 2 }}
"""
FILES = {
    "deep.dnn": MODEL.format(batch=16, optimizer="sgd(lr = 0.01)"),
    "branches.dnn": """dim B = 16, C = 64, K = 8
net wide(x: [B, C]) -> [B, K] {
  param p: [C, D:64] = normal(0.1)
  param q: [C, D:64] = normal(0.1)
  param r: [D:64, K] = normal(0.1)
  a = relu(dot(x, p, C))
  b = relu(dot(x, q, C))
  return dot(a + b, r, D)
}
data d { x: [B, C] = synthetic(); y: i32[B] = synthetic(K) }
train { loss = cross_entropy(wide(d.x), d.y, K); optimizer = sgd(lr = 0.01); steps = 2 }
""",
    "one.dnn": """dim B = 16, C = 64, K = 8
net one(x: [B, C]) -> [B, K] {
  param p: [C, K] = normal(0.1)
  return dot(x, p, C)
}
data d { x: [B, C] = synthetic(); y: i32[B] = synthetic(K) }
train { loss = cross_entropy(one(d.x), d.y, K); optimizer = sgd(lr = 0.01); steps = 2 }
""",
    "four.cluster": """device core { base = cpu; memory = 1GiB }
cluster made { device = core; level node { count = 4; link = 50MB/s } }
""",
    "many.cluster": """device core { base = cpu; memory = 1GiB }
cluster made { device = core; level node { count = 8; link = 50MB/s } level far { count = 4; link = 20MB/s } }
""",
    "mixed.cluster": """device core { base = cpu; memory = 1GiB }
device half { base = cpu; memory = 2GiB }
cluster made {
  group a { device = core; level node { count = 4; link = 50MB/s } }
  group b { device = half; level node { count = 4; link = 50MB/s } }
  level room { link = 10MB/s }
}
""",
    "list.csv": "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
}


def write_files():
    for name, text in FILES.items():
        with open(name, "w") as file:
            file.write(text)


def run_plan(dnnc, words, lines, plan="pins.plan", out="found.plan"):
    """Returns the exit code and the messages."""
    with open(plan, "w") as file:
        file.write(lines)
    words = list(words)
    model = "deep.dnn"
    if "--model" in words:
        at = words.index("--model")
        model = words[at + 1]
        del words[at : at + 2]
    if "--cluster" not in words:
        words += ["--cluster", "four.cluster"]
    if os.path.exists(out):
        os.remove(out)
    ran = subprocess.run([dnnc, "plan", model, *words, "--plan", plan, "-o", out],
                         capture_output=True, text=True, timeout=600)
    return ran.returncode, ran.stderr


# ---- refusals ----


def read_cases(golden):
    head, *cases = re.split(r"^=== ", open(golden).read(), flags=re.M)
    out = []
    for case in cases:
        title, words, rest = case.split("\n", 2)
        lines, _, messages = rest.partition("---\n")
        out.append((title, words, lines, messages.strip("\n")))
    return head, out


def refusals(dnnc, golden):
    head, cases = read_cases(golden)
    text, bad = head, 0
    for title, words, lines, expected in cases:
        code, messages = run_plan(dnnc, words.split(), lines)
        got = messages.strip("\n") + f"\nexit {code}"
        text += f"=== {title}\n{words}\n{lines}---\n{got}\n\n"
        place = re.search(r"^pins\.plan:\d+:\d+: error: ", got, re.M)
        has_help = "help: " in got or re.search(r"error: .*: [a-z ]*(change|number|name|give)", got)
        if code not in (1, 2) or not place or not has_help:
            print(f"FAIL: {title}: no place, no help, or exit {code}\n{got}")
            bad += 1
        elif not os.environ.get("DNNC_BLESS") and got != expected:
            print(f"FAIL: {title}: expected\n{expected}\ngot\n{got}")
            bad += 1
    if os.environ.get("DNNC_BLESS"):
        with open(golden, "w") as file:
            file.write(text.rstrip("\n") + "\n")
    print(f"{len(cases)} refusals")
    return bad


# ---- what a found plan has ----


def numbers_of(text):
    """Sizes of axes and settings, and lines about stages, of a plan file."""
    body = text.split("certificate")[0]
    settings = dict(re.findall(r"^\s*(\w+)\s*=\s*([^\n#]+?)\s*$", body.replace(";", "\n").replace("{", "{\n").replace("}", "\n}"), re.M))
    cuts = re.findall(r"cut after ([^\n#}]+?)\s*(?:}|$)", body, re.M)
    stages = re.findall(r"stage (\d+): ([^\n#]+?)\s*$", body, re.M)
    return settings, cuts, stages


def spelled(schedule):
    return schedule if "(" in schedule or schedule not in ("interleaved", "bfs", "zb1p") else schedule + "(v = 2)"


def missing(pins, found):
    """Returns a pin that the found plan lacks, or None."""
    asked, cuts, stages = numbers_of(pins)
    has, has_cuts, has_stages = numbers_of(found)
    for name, value in asked.items():
        if value == "auto":
            continue
        if name == "pipe" and stages:  # ranks of lines `stage` say the same
            groups = {line.partition(" on ")[2] for _, line in has_stages}
            if value in (has.get(name), str(len(groups))):
                continue
        if name == "schedule" and spelled(has.get(name, "")) == spelled(value):
            continue
        if name in ("memory",) or has.get(name, "1") == value:
            continue
        return f"{name} = {value}, not {has.get(name)}"
    for cut in cuts:
        if cut not in has_cuts:
            return f"cut after {cut}"
    for number, line in stages:
        paths, _, on = line.partition(" on ")
        has_line = dict(has_stages).get(number, "")
        if has_line.split(" on ")[0] != paths or (on and on.split(" as ")[0] != has_line.partition(" on ")[2]):
            return f"stage {number}: {line}, not {has_line}"
    return None


def step_of(dnnc, plan, model="deep.dnn", cluster="four.cluster", *words):
    ran = subprocess.run([dnnc, "simulate", model, *words, "--plan", plan, "--cluster", cluster, "--json"],
                         capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"simulate {plan}: {ran.stderr}")
    return float(re.findall(r'"step_s":([-+.\de]+)', ran.stdout)[-1])


KEPT = [
    "mesh { pipe = 2 }\n",
    "mesh { pipe = 4 }\n",
    "mesh { pipe = auto }\n",
    "mesh { pipe = auto; data = 2 }\n",
    "mesh { pipe = 2; data = auto }\n",
    "plan { schedule = zbh1 }\n",
    "plan { schedule = gpipe }\n",
    "plan { schedule = interleaved(v = 2) }\n",
    "plan { schedule = zbv }\n",
    "mesh { pipe = 2; data = 2 }\nplan { schedule = fthenb\n microbatches = 4 }\n",
    "mesh { pipe = 2 }\nplan {\n  microbatches = 1\n}\n",
    "plan { cut after linear[2] }\n",
    "plan {\n  schedule = 1f1b\n  cut after linear[0]\n  cut after linear[4]\n}\n",
    "plan {\n  stage 0: linear[0..2]\n  stage 1: linear[3..7], head\n}\n",
    "plan {\n  stage 0: linear[0..2] on 2..3\n  stage 1: linear[3..7], head on 0..1\n}\n",
    "plan {\n  stage 0: linear[0..2] on 2..3 as (data = 2)\n  stage 1: linear[3..7], head on 0..1 as (data = 2)\n}\n",
]


def kept(dnnc):
    bad = 0
    for lines in KEPT:
        code, messages = run_plan(dnnc, ["--ranks", "4", "--quiet"], lines)
        lack = "a plan" if code else missing(lines, open("found.plan").read())
        stages = not code and re.search(r"cut after|stage \d", open("found.plan").read())
        if code or lack or not stages:
            print(f"FAIL: {lines}lacks {lack}\n{messages}")
            bad += 1
    for batch in (12, 15):  # neither is a power of two
        code, messages = run_plan(dnnc, ["--ranks", "4", "--quiet", f"B={batch}"], "mesh { pipe = 4 }\n")
        if code or not re.search(r"microbatches *= 3\n", open("found.plan").read()):
            print(f"FAIL: a batch of {batch}: {messages}")
            bad += 1
    print(f"{len(KEPT)} kept")
    return bad


# ---- again ----


def program_of(dnnc, plan, model, cluster):
    ran = subprocess.run([dnnc, "ir", model, "--plan", plan, "--after=partition"], capture_output=True, text=True)
    return ran.stdout if ran.returncode == 0 else ran.stderr


# Stages that no search takes, but the lines say all about them.
AS_WRITTEN = [
    (["--ranks", "3"], "plan {\n schedule = 1f1b\n microbatches = 4\n stage 0: linear[0..3] on 0..1 as (data = 2)\n stage 1: linear[4..7] on 2\n}\n"),
    (["--cluster", "mixed.cluster"], "mesh { pipe = 2; data = 4 }\nplan {\n schedule = gpipe\n microbatches = 4\n cut after linear[3]\n}\n"),
    (["--ranks", "2"], 'mesh { pipe = 2 }\nplan {\n schedule = "list.csv"\n microbatches = 2\n cut after linear[3]\n}\n'),
]


def as_written(dnnc):
    bad = 0
    for words, lines in AS_WRITTEN:
        code, messages = run_plan(dnnc, [*words, "--quiet"], lines)
        programs = [program_of(dnnc, plan, "deep.dnn", None) for plan in ("pins.plan", "found.plan")]
        if code or programs[0] != programs[1] or "stage 1" not in programs[0]:
            print(f"FAIL: {lines}another program\n{messages}")
            bad += 1
    return bad


def again(dnnc, models=(("deep.dnn", "four.cluster", ()),)):
    bad = 0
    for lines in ("mesh { pipe = 2; data = 2 }\n", "mesh { pipe = 4 }\n", "plan { schedule = zbh1 }\n"):
        for model, cluster, words in models:
            words = ["--ranks", "4", "--quiet", "--model", model, "--cluster", cluster, *words]
            code, messages = run_plan(dnnc, words, lines, out="first.plan")
            if code:
                print(f"FAIL: {lines}{messages}")
                bad += 1
                continue
            first = open("first.plan").read()
            code, messages = run_plan(dnnc, words, first, "as_pins.plan", "second.plan")
            second = open("second.plan").read() if code == 0 else messages
            steps = [re.findall(r"^\s*step\s*=\s*(\S+)", text, re.M) for text in (first, second)]
            if code or steps[0] != steps[1]:
                print(f"FAIL: {lines}steps {steps}\n{messages}")
                bad += 1
            elif program_of(dnnc, "first.plan", model, cluster) != program_of(dnnc, "second.plan", model, cluster):
                print(f"FAIL: {lines}another program")
                bad += 1
    return bad


# ---- conflicts ----

CONFLICTS = [
    ("--ranks 2", ["mesh { pipe = 2 }"], ["schedule = fthenb", "microbatches = 8", "zero = 0", "memory = 150KB"]),
    ("--ranks 4", ["mesh { pipe = 2; data = 2 }"], ["schedule = gpipe", "zero = 0", "cut after linear[6]", "memory = 120KB"]),
    ("--ranks 4", ["mesh { pipe = 4 }"], ["schedule = fthenb", "microbatches = 16", "memory = 80KB"]),
]


def written(mesh, lines):
    return "\n".join(mesh) + "\nplan {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def without(words, mesh, lines, text):
    """Returns the case without this member."""
    if text.startswith("--"):
        return [], mesh, lines
    if text.startswith("mesh"):
        return words, [], lines
    assert text in lines, text
    return words, mesh, [line for line in lines if line != text]


def faults_of_conflict(dnnc, words, mesh, lines, messages):
    """Returns the members, whether each is enough, and those without which there is no plan."""
    found = re.search(r"no plan was found that keeps (.*)", messages)
    if not found:
        return [], False, []
    members = re.findall(r"'([^']*)'", found.group(1))
    is_each_enough = "help: without" in messages
    faults = []
    for member in members if is_each_enough else []:
        now, its_mesh, its_lines = without(words, mesh, lines, member)
        code, said = run_plan(dnnc, [*now, "--effort", "200"], written(its_mesh, its_lines))
        if code:
            faults.append(f"no plan without '{member}' of {members}:\n{said}")
    return members, is_each_enough, faults


def conflicts(dnnc):
    bad = 0
    for words, mesh, lines in CONFLICTS:
        words = words.split()
        code, messages = run_plan(dnnc, [*words, "--effort", "60"], written(mesh, lines))
        members, is_each_enough, faults = faults_of_conflict(dnnc, words, mesh, lines, messages)
        if code != 2 or not members or "in frames of" not in messages or "what helps" not in messages or faults:
            print(f"FAIL: exit {code} of {written(mesh, lines)}{messages}{''.join(faults)}")
            bad += 1
            continue
        print(f"conflict of {', '.join(members)}{'' if is_each_enough else ' and others'}")
    return bad


CONFLICT_LINES = ["schedule = fthenb", "schedule = gpipe", "schedule = 1f1b", "schedule = zbh1", "schedule = bfs(v = 2)",
                  "microbatches = 2", "microbatches = 4", "microbatches = 8", "microbatches = 16", "zero = 0", "zero = 1",
                  "cut after linear[6]", "cut after linear[0]", "cut after linear[3]"]
CONFLICT_MESHES = ["mesh { pipe = 2 }", "mesh { pipe = 2; data = 2 }", "mesh { pipe = 4 }", "mesh { pipe = auto }",
                   "mesh { pipe = 2; tensor = 2 }", "mesh { pipe = auto; data = 2 }"]


def random_conflict(dnnc, seed, case):
    """Returns what is wrong, and the members; no members: the pins can be kept, or were refused for another reason."""
    r = random.Random(f"conflict {seed} {case}")
    mesh = [r.choice(CONFLICT_MESHES)]
    lines, words = [], ["--ranks", "4"]
    for line in r.sample(CONFLICT_LINES, r.randint(1, 4)):
        name = line.split()[0]
        if not any(name == other.split()[0] for other in lines):
            lines.append(line)
    lines.append(f"memory = {r.choice([40, 55, 70, 85, 100, 120, 140, 170])}KB")
    code, messages = run_plan(dnnc, [*words, "--effort", "60"], written(mesh, lines))
    members, is_each_enough, faults = faults_of_conflict(dnnc, words, mesh, lines, messages) if code == 2 else ([], False, [])
    if code == 2 and not members:
        faults = ["no conflict is named\n"]
    said = "".join(f"FAIL: case {case}: {fault}{written(mesh, lines)}{messages}" for fault in faults)
    return said, members if is_each_enough else []


def random_conflicts(dnnc, seed, first, n):
    bad = kept = 0
    for case in range(first, first + n):
        said, members = random_conflict(dnnc, seed, case)
        bad += bool(said)
        kept += bool(members)
        if said:
            print(said, flush=True)
    print(f"cases {first} to {first + n - 1} of seed {seed}: {kept} conflicts of which each member is enough, {bad} wrong")
    return bad


# ---- random pins ----

SCHEDULES = ["naive", "fthenb", "gpipe", "1f1b", "interleaved", "interleaved(v = 2)", "interleaved(v = 4)", "bfs(v = 2)",
             "bfs(v = 3)", "zb1p(v = 2)", "zbh1", "zbh2", "zbv", "vhalf", "vmin", "dualpipev", "zbh1(times = (2, 2, 1))",
             "chimera", "auto"]


def random_stages(r):
    n = r.choice([1, 2, 2, 2, 3, 4])
    ends = sorted(r.sample(range(7), n - 1)) + [r.choice([7, 7, 7, 7, 8, 5])]
    lines, first = [], 0
    size, has_ranks = r.choice([1, 1, 2]), r.random() < 0.4
    for stage, end in enumerate(ends):
        on = f" on {stage * size}" + (f"..{stage * size + size - 1}" if size > 1 else "") if has_ranks else ""
        lines.append(f"  stage {stage}: linear[{first}..{min(end, 7)}]{on}")
        first = end + 1
    if r.random() < 0.2:
        r.shuffle(lines)
    return lines


def random_pins(seed, case):
    """Returns options and lines."""
    r = random.Random(f"{seed} {case}")
    mesh, lines = [], []
    if r.random() < 0.7:
        mesh.append(f"pipe = {r.choice(['auto', 1, 2, 2, 2, 3, 4, 4, 8])}")
    for name in ("data", "tensor"):
        if r.random() < 0.3:
            mesh.append(f"{name} = {r.choice(['auto', 1, 2, 2, 4])}")
    if r.random() < 0.5:
        lines.append(f"  schedule = {r.choice(SCHEDULES)}")
    if r.random() < 0.5:
        lines.append(f"  microbatches = {r.choice([1, 2, 3, 4, 5, 6, 8, 12, 16])}")
    if r.random() < 0.2:
        lines.append(f"  zero = {r.choice([0, 1, 2, 3])}")
    if r.random() < 0.15:
        lines.append(f"  memory = {r.choice(['60KB', '200KB', '1MB', '10MB'])}")
    kind = r.random()
    if kind < 0.35:
        ends = r.sample(["linear[0]", "linear[0].dot", "linear[1]", "linear[3]", "linear[3]!dot", "linear[5]", "linear[8]", "x[2]", "d"],
                        r.choice([1, 1, 2, 3]))
        if r.random() < 0.8:
            ends.sort(key=lambda text: text[-2:])
        lines += [f"  cut after {end}" for end in ends]
    elif kind < 0.6:
        lines += random_stages(r)
    text = "mesh { " + "; ".join(mesh) + " }\n" if mesh else ""
    text += "plan {\n" + "\n".join(lines) + "\n}\n"
    words = ["--effort", "60", "--quiet"]
    if r.random() < 0.8:
        words += ["--ranks", r.choice(["2", "4", "4", "4", "8"])]
    if r.random() < 0.5:
        words += ["--cluster", "many.cluster"]
    if "--cluster" not in words and "8" in words:
        words += ["--cluster", "many.cluster"]
    if r.random() < 0.3:
        words.append("--search=stages")
    if r.random() < 0.3:
        words.append(f"B={r.choice([4, 6, 12, 24])}")
    return words, text


def random_case(dnnc, seed, case):
    words, text = random_pins(seed, case)
    code, messages = run_plan(dnnc, words, text)
    what = f"case {case}: {' '.join(words)}\n{text}{messages}"
    if code not in (0, 1, 2):
        return f"FAIL: exit {code}, {what}"
    if code == 0:
        lack = missing(text, open("found.plan").read())
        return f"FAIL: lacks {lack}, {what}" + open("found.plan").read() if lack else "kept"
    if "error: " not in messages:
        return f"FAIL: no reason, {what}"
    if not re.search(r"pins\.plan:\d+:\d+: error: ", messages) and "--ranks" not in messages:
        return f"FAIL: no place, {what}"
    return "refused"


def random_cases(dnnc, seed, first, n):
    counts = {"kept": 0, "refused": 0}
    bad = 0
    for case in range(first, first + n):
        said = random_case(dnnc, seed, case)
        if said not in counts:
            print(said, flush=True)
            bad += 1
            continue
        counts[said] += 1
    print(f"cases {first} to {first + n - 1} of seed {seed}: {counts['kept']} kept, {counts['refused']} refused, {bad} wrong")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["files", "refusals", "kept", "again", "conflicts", "drops", "random"])
    parser.add_argument("dnnc", nargs="?")
    parser.add_argument("golden", nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--from", type=int, default=0, dest="first")
    of = parser.parse_args()
    write_files()
    if of.what == "files":
        return 0
    if of.what == "refusals":
        return refusals(of.dnnc, of.golden)
    if of.what == "kept":
        return kept(of.dnnc)
    if of.what == "conflicts":
        return conflicts(of.dnnc)
    if of.what == "drops":
        return random_conflicts(of.dnnc, of.seed, of.first, of.cases)
    if of.what == "again":
        return again(of.dnnc) + as_written(of.dnnc)
    return random_cases(of.dnnc, of.seed, of.first, of.cases)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)

"""replay.py -- the work of tools/replay.sh: runs two builds of dnnc over all
models and compares what they put out; that script says what is compared."""

import argparse
import difflib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

# The builds to compare: name, options as the old commit spells them.
BUILDS = [
    ("cpu", ["--target", "cpu"]),
    ("cpu-O0", ["--target", "cpu", "-O0"]),
    ("cuda", ["--target", "cuda:sm_80"]),
    ("null", ["--target", "null"]),
    ("ranks", ["--target", "cpu", "--ranks", "2"]),
    ("microbatches",
     ["--target", "cpu", "--ranks", "2", "--microbatches", "2"]),
]
# The models of models/ that make three steps: those that are quick, with data
# that is there.  Every model of tests/reference makes them too.
RUNS = ["charlstm", "charmoe", "chargpt", "lenet", "mlp", "resnet_mnist",
        "reverse", "unet_shapes", "vit_digits"]
RUN_KEYS = ["step", "loss", "norm", "lr", "validation_loss", "metrics",
            "parameters_sha256", "arena_bytes"]
LAST_PASS = "list_schedule"  # its name in the old commit
# The clusters on which every plan of benchmarks/reality is priced that they have
# ranks for: one of GPUs, one of the CPU.
CLUSTERS = ["pipedream-a", "laptop"]
SHOWN = 4  # differences of a job that are shown with their lines

# ---- renames ----


SECTIONS = ["words", "graphs", "emitted", "options", "folders"]


def read_renames(path):
    renames = {name: {} for name in SECTIONS}
    merged = {name: {} for name in SECTIONS}
    section = None
    for number, line in enumerate(open(path), 1):
        line = line.split("#")[0].strip()
        if not line or line.startswith("base "):
            continue
        if line.startswith("["):
            section = renames.get(line.strip("[]"))
        elif section is not None and " -> " in line:
            old, new = line.split(" -> ")
            new, *others = [word.strip() for word in new.split("|")]
            section[old.strip()] = new
            merged["words"].update({other: new for other in others})
        else:
            sys.exit(f"{path}:{number}: expected 'old -> new' in one of "
                     + " ".join(f"[{name}]" for name in SECTIONS))
    for table in renames, merged:
        table["graphs"].update(table["words"])
        table["emitted"].update(table["words"])
    return renames, merged


def rename_words(text, words):
    if not words:
        return text
    for old, new in words.items():
        if not old.isidentifier():
            text = text.replace(old, new)
    return re.sub(r"[A-Za-z_]\w*", lambda m: words.get(m[0], m[0]), text)


# ---- what is compared ----


class Numbering:
    """Hashes by the number of their first appearance."""

    def __init__(self):
        self.numbers = {}

    def number(self, hash_text):
        return self.numbers.setdefault(hash_text, len(self.numbers))


def number_hashes(text, numbering, words):
    """Names of kernels and hashes of models depend on the text of graphs."""

    def kernel(m):
        kind = words.get(m[2], m[2])
        return f"{m[1]}{kind}_#{numbering.number(m[3])}"

    # Kernels of attention on CUDA have no prefix.
    text = re.sub(r"\b(dnn_|(?=attention))(\w+?)_([0-9a-f]{12})(?=\b|_)",
                  kernel, text)
    return re.sub(r'"[0-9a-f]{32}"',
                  lambda m: f'"#{numbering.number(m[0])}"', text)


def without_comments(text):
    """Comments of emitted C are prose, which is written anew."""
    pattern = r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*'
    text = re.sub(pattern, lambda m: m[0] if m[0][0] == '"' else " ", text,
                  flags=re.S)
    return re.sub(r"[ \t]+\n", "\n", text)


def string_of(data):
    """The string that fills these bytes of a table, or None."""
    end = data.find(b"\0")
    if end < 1 or any(data[end:]) or len(data) - end > 8:
        return None
    text = data[:end]
    return text.decode() if all(32 <= c < 127 for c in text) else None


def print_tables(data, program):
    """The image of program tables as lines, and the program's text with numbers
    of objects instead of places: both move when a string gets longer."""
    m = re.search(r"AT\(uint32_t, (\d+)\);\s*for \(int i = 0; i < (\d+)",
                  program)
    end, n = int(m[1]), int(m[2])
    links = set(struct.unpack_from(f"<{n}I", data, end))
    word = lambda at: struct.unpack_from("<Q", data, at)[0]
    starts = {word(at) for at in links} | {0, end}
    starts |= {int(at) for at in re.findall(r"\bAT\(\w+, (\d+)\)", program)}
    starts = sorted(starts)
    number = {at: i for i, at in enumerate(starts)}
    lines = []
    for at, after in zip(starts, starts[1:]):
        text = None if at in links else string_of(data[at:after])
        if text is not None:
            lines.append(f"object {number[at]}: {json.dumps(text)}")
            continue
        lines.append(f"object {number[at]}:")
        for place in range(at, after, 8):
            if place in links:
                lines.append(f"  -> object {number[word(place)]}")
            else:
                lines.append("  " + data[place:place + 8].hex())
    program = re.sub(r"\bAT\((\w+), (\d+)\)",
                     lambda m: f"AT({m[1]}, object {number[int(m[2])]})",
                     program)
    return "\n".join(lines) + "\n", program


DEFINITION = re.compile(r"(?:void (\w+_[0-9a-f]{12})\(void"
                        r"|DNN_KERNEL\((\w+_[0-9a-f]{12}),)")


def split_kernels(text, is_cuda):
    """The text that precedes the first kernel of a file, and (name, text) of
    each kernel.  In CUDA an empty line precedes each kernel's text; in C a
    kernel's text ends with its body and may begin with macros."""
    lines, prelude, kernels, end = text.split("\n"), [], [], 0

    def belongs(line):
        return line if is_cuda else line.startswith(("#undef ", "#define "))

    for at, line in enumerate(lines):
        found = DEFINITION.match(line)
        if not found or at < end:
            continue
        first = at
        while first > end and belongs(lines[first - 1]):
            first -= 1
        # Text between two kernels that is of neither stays in the prelude.
        prelude += lines[end:first]
        end = lines.index("}", at) + 1
        while is_cuda and end < len(lines) and lines[end]:
            end += 1
        kernels.append((found[1] or found[2], "\n".join(lines[first:end])))
    prelude += lines[end:]
    return "\n".join(prelude).rstrip("\n") + "\n", kernels


def without_modules(program):
    """Kernels are spread over modules by the length of their text, so nothing
    depends on the number of a module, or on how many there are."""
    text = re.sub(r"\b(dnn_(?:plain_)?images?)_\d+", r"\1_N", program)
    text = re.sub(r"(image)-\d+-", r"\1-N-", text)
    text = re.sub(r"\.module = \d+", ".module = N", text)
    text = re.sub(r"\.n_modules = [1-9]\d*", ".n_modules = N", text)
    text = re.sub(r"(\n +\{\d+, \w+_N\},)\1+", r"\1", text)
    seen, kept = set(), []
    for piece in re.split(r"(?<=;)\n", text):
        if not re.search(r"images?_N\b|image_N_", piece) or piece not in seen:
            kept.append(piece)
        seen.add(piece)
    return "\n".join(kept)


def graphs_of(text):
    """Graphs by name out of what --after printed among messages."""
    found = re.findall(r"^(graph (\w+).*?^\}\n)", text, flags=re.S | re.M)
    return {name: graph for graph, name in found}


class Side:
    """One of the two commits: its dnnc and its files.  Output of the old one is
    renamed; options and paths are changed for the new one."""

    def __init__(self, dnnc, tree, work, renames, options, folders):
        self.dnnc, self.tree, self.work = dnnc, os.path.realpath(tree), work
        self.renames, self.options, self.folders = renames, options, folders

    def arguments(self, words):
        return [self.options.get(word, word) for word in words]

    def path(self, path):
        """A path of the old tree in this one."""
        for old, new in self.folders.items():
            if path == old or path.startswith(old + "/"):
                path = new + path[len(old):]
        return os.path.join(self.tree, path)

    def call(self, words, out_dir, tools):
        environment = dict(os.environ, **tools)
        return subprocess.run([self.dnnc] + self.arguments(words),
                              cwd=out_dir, env=environment, text=True,
                              errors="replace", capture_output=True)


def emitted_files(bundle, side):
    """Text of every file of a bundle that is not an executable; the files of
    kernels as one text of each kernel and one of what precedes them."""
    source, numbering = os.path.join(bundle, "source"), Numbering()
    words = side.renames["emitted"]

    def clean(text, is_table=False):
        text = re.sub(re.escape(bundle) + r"\.unfinished-\w+", "BUNDLE", text)
        text = text.replace(side.tree, "TREE")
        if not is_table:
            text = without_comments(text)
        return rename_words(number_hashes(text, numbering, words), words)

    program = open(os.path.join(source, "program.c")).read()
    tables = open(os.path.join(source, "tables.bin"), "rb").read()
    tables, program = print_tables(tables, program)
    # The program is first: it numbers kernels in the order of their launches.
    texts = {"program.c": without_modules(clean(program)),
             "tables.bin": clean(tables, is_table=True)}
    preludes, kernels = {}, []
    for name in sorted(os.listdir(source)):
        if name in ("program.c", "program.h", "tables.bin"):
            continue  # program.h is a copy of runtime/program.h
        text = open(os.path.join(source, name)).read()
        group = re.sub(r"-\d+\.", ".", name)
        prelude, found = split_kernels(text, name.endswith(".cu"))
        preludes.setdefault(f"{group}: prelude", set()).add(clean(prelude))
        kernels += [(group, *kernel) for kernel in found]
    for group, distinct in sorted(preludes.items()):
        texts[group] = "".join(sorted(distinct))
    # Stable: kernels that no table names keep the order of their files.
    hash_number = lambda k: numbering.numbers.get(k[1][-12:], 1 << 30)
    for group, name, text in sorted(kernels, key=hash_number):
        key = f"{group}: {clean(name)}"
        texts[key] = texts.get(key, "") + clean(text) + "\n"
    plan = open(os.path.join(bundle, "plan.plan")).read()
    texts["plan"] = rename_words(plan, side.renames["words"])
    return texts


def build(side, model, options, tools):
    """All texts of a build by name, or None where it is refused."""
    out = tempfile.mkdtemp(dir=side.work)
    try:
        bundle = os.path.join(out, "it.bundle")
        result = side.call(
            ["build", side.path(model), "--after", LAST_PASS, "--no-cache",
             "--keep-source", "--follow-links", "--data", side.tree, "-o",
             bundle] +
            [side.path(o) if o.endswith(".plan") else o for o in options],
            out, tools)
        if result.returncode:
            return None, result.stderr[-400:]
        printed = rename_words(result.stderr, side.renames["graphs"])
        texts = {"graph " + name: graph
                 for name, graph in graphs_of(printed).items()}
        if not texts:
            return None, "no graph was printed"
        texts.update(emitted_files(bundle, side))
        return texts, ""
    finally:
        shutil.rmtree(out)


def run(side, model, tools):
    """Losses and hash of the parameters after three steps, as JSON lines."""
    out = tempfile.mkdtemp(dir=side.work)
    try:
        result = side.call(["run", side.path(model), "--steps", "3", "--json",
                            "--no-save", "--follow-links", "--data",
                            side.tree], out, tools)
        if result.returncode:
            return None, result.stderr[-400:]
        lines = []
        for line in result.stdout.splitlines():
            record = json.loads(line, parse_float=str)
            lines.append(json.dumps({key: record[key] for key in RUN_KEYS
                                     if key in record}))
        return {"losses": "\n".join(lines) + "\n"}, ""
    finally:
        shutil.rmtree(out)


def price(side, words, tools):
    """What `simulate` predicts, as JSON."""
    out = tempfile.mkdtemp(dir=side.work)
    try:
        is_file = lambda word: word.endswith((".dnn", ".plan", ".cluster"))
        result = side.call(["simulate"] + [side.path(word) if is_file(word)
                                           else word for word in words]
                           + ["--json"], out, tools)
        if result.returncode:
            return None, result.stderr[-400:]
        return {"price": result.stdout.replace(",", ",\n")}, ""
    finally:
        shutil.rmtree(out)


# ---- comparing ----


def shorten(lines):
    """Long lines of a difference, from a little before where they differ."""
    shown, at = [], 0
    while at < len(lines):
        begin = at
        while at < len(lines) and lines[at][0] == "-":
            at += 1
        middle = at
        while at < len(lines) and lines[at][0] == "+":
            at += 1
        for old, new in zip(lines[begin:middle], lines[middle:at]):
            same = len(os.path.commonprefix([old[1:], new[1:]]))
            cut = max(0, same - 40)
            shown += [old[0] + old[1 + cut:], new[0] + new[1 + cut:]]
        paired = min(middle - begin, at - middle)
        shown += lines[begin + paired:middle] + lines[middle + paired:at]
        if begin == at:
            shown.append(lines[at])
            at += 1
    return [line[:150] for line in shown]


def first_difference(old, new):
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), "old",
                                "new", lineterm="", n=2)
    lines = [line for _, line in zip(range(26), diff)][2:]
    return "\n".join("    " + line for line in shorten(lines))


def compare(job, old, new):
    """A list of differences; None where the old commit refused the model."""
    (old_texts, why), (new_texts, new_why) = old, new
    if old_texts is None:
        return None
    if new_texts is None:
        return [f"{job}: only the old commit accepts it: {new_why}"]
    differences = []
    for name in list(dict.fromkeys(list(old_texts) + list(new_texts))):
        if name not in old_texts or name not in new_texts:
            where = "old" if name in old_texts else "new"
            differences.append(f"{job}: {name}: only the {where} commit has it")
        elif old_texts[name] != new_texts[name]:
            differences.append(f"{job}: {name} differs\n" + first_difference(
                old_texts[name], new_texts[name]))
    if len(differences) > SHOWN:
        names = [difference.split("\n")[0] for difference in differences]
        more = [name.removeprefix(job + ": ") for name in names[SHOWN:]]
        differences[SHOWN:] = [f"{job}: and {len(more)} more: "
                               + ", ".join(more)]
    return differences


def models_of(tree, only):
    names = sorted(n[:-4] for n in os.listdir(os.path.join(tree, "models"))
                   if n.endswith(".dnn") and n != "lib.dnn")
    return [n for n in names if re.search(only, n)]


def price_jobs(tree, only):
    """The plans of benchmarks/reality on each of CLUSTERS."""
    jobs, models = [], {}
    for line in open(os.path.join(tree, "benchmarks/reality/pairs.txt")):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "model":
            models[words[1]] = words[2:]
            continue
        kind, name, plan = words
        if not re.search(only, name):
            continue
        path = f"benchmarks/reality/{name}/{kind}_{plan}.plan"
        jobs += [(f"{name} {kind}_{plan} on {cluster}", price,
                  models[name] + ["--plan", path, "--cluster",
                                  f"models/{cluster}.cluster"])
                 for cluster in CLUSTERS]
    return jobs


def make_jobs(tree, only, no_runs):
    """Title, function that makes texts of a side, and its arguments."""
    jobs = []
    for name in models_of(tree, only):
        path = f"models/{name}.dnn"
        jobs += [(f"{name} {title}", build, path, options)
                 for title, options in BUILDS]
        plan = f"models/{name}.plan"
        if os.path.exists(os.path.join(tree, plan)):
            jobs += [(f"{name} plan {target}", build, path,
                      ["--target", target, "--plan", plan])
                     for target in ("cpu", "cuda:sm_80")]
        if name in RUNS and not no_runs:
            jobs.append((f"{name} three steps", run, path))
    for name in sorted(os.listdir(os.path.join(tree, "tests/reference"))):
        if name.endswith("_small.dnn") and re.search(only, name[:-4]):
            path = f"tests/reference/{name}"
            jobs.append((f"{name[:-4]} cpu", build, path, BUILDS[0][1]))
            if not no_runs:
                jobs.append((f"{name[:-4]} three steps", run, path))
    return jobs + price_jobs(tree, only)


def do_job(job, old, new, tools):
    title, function, *arguments = job
    environment = tools["build" if function is build else "run"]
    return title, compare(title, *[function(side, *arguments, environment)
                                   for side in (old, new)])


def main():
    parser = argparse.ArgumentParser()
    for name in ("old", "old-tree", "new", "new-tree", "work", "renames",
                 "stub-cc", "stub-nvrtc"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--no-runs", action="store_true")
    a = parser.parse_args()
    renames, merged = read_renames(a.renames)
    cache = {"XDG_CACHE_HOME": os.path.join(a.work, "cache")}
    tools = {"build": dict(cache, CC=a.stub_cc, DNN_NVRTC_LIB=a.stub_nvrtc),
             "run": cache}
    old = Side(a.old, a.old_tree, a.work, renames, {}, {})
    new = Side(a.new, a.new_tree, a.work, merged, renames["options"],
               renames["folders"])
    jobs = make_jobs(old.tree, a.only, a.no_runs)
    if not jobs:
        sys.exit(f"replay.sh: no model matches '{a.only}'")
    start, different, refused, done = time.time(), 0, [], 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for title, found in pool.map(
                lambda job: do_job(job, old, new, tools), jobs):
            done += 1
            if found is None:
                refused.append(title)
            elif found:
                different += 1
                print("\n".join(found), flush=True)
            if done % 20 == 0 or done == len(jobs):
                print(f"replay.sh: {done} of {len(jobs)} after "
                      f"{time.time() - start:.0f} s", flush=True)
    if refused:
        print("replay.sh: the old commit refuses: " + ", ".join(refused))
    print(f"replay.sh: {len(jobs) - different - len(refused)} the same, "
          f"{different} different, {len(refused)} not compared")
    sys.exit(different > 0)


main()

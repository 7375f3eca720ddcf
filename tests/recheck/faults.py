"""faults.py -- seeds faults into the tables and the elimination of the search,
and checks that the recheck refuses each bound that one of them raises.

    faults.py BUILD [--engine] [--from N] [--to N] [--cases FIRST LAST] [--keep]

A fault of faults.txt changes one expression of a file of planner/.  The changed
copy is compiled and linked before the library, so the recheck stays right.
--cases asks about these cases alone; those from 9 on have stages.  With --keep
a fault that raises no bound is told, and is no failure.  --engine seeds those of
engine_faults.txt into the engine; a bound is raised there if it is above the
least cost, not above the bound without a fault.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIBRARIES = ["planner", "driver", "codegen", "frontend", "passes", "price",
             "interp", "runtime", "ir", "support"]


class Subject:
    """What is seeded; `right`: where a line has what no bound may be above."""

    def __init__(self, engine):
        self.main = "tests/recheck/duals.c" if engine else (
            "tests/recheck/bounds.c")
        self.program = "recheck_duals" if engine else "recheck_bounds"
        self.faults = "engine_faults.txt" if engine else "faults.txt"
        self.libraries = ["planner", "support"] if engine else LIBRARIES
        self.right = 1 if engine else 3


def read_faults(subject):
    faults = []
    for line in open(os.path.join(HERE, subject.faults)):
        if line.startswith("#") or not line.strip():
            continue
        file, change = line.rstrip("\n").split(": ", 1)
        old, new = re.split(r" =>(?: |$)", change, maxsplit=1)
        faults.append((file, old, new))
    return faults


def command_of(build, source):
    for entry in json.load(open(os.path.join(build, "compile_commands.json"))):
        if entry["file"] == os.path.join(ROOT, source):
            words = entry["command"].split()
            if "ccache" in words[0]:
                words = words[1:]
            return words, os.path.join(entry["directory"],
                                       words[words.index("-o") + 1])
    sys.exit(f"faults.py: {build} does not build {source}")


def change(text, old, new):
    """Breaks of lines and indents of the code do not count."""
    pattern = r"\s+".join(re.escape(word) for word in old.split())
    found = re.findall(pattern, text)
    if len(found) != 1:
        sys.exit(f"faults.py: '{old}' is {len(found)} times in the file")
    return re.sub(pattern, lambda match: new, text)


def compile_fault(subject, build, fault, scratch):
    file, old, new = fault
    words, _ = command_of(build, f"planner/{file}")
    source = os.path.join(scratch, os.path.basename(file))
    text = open(os.path.join(ROOT, "planner", file)).read()
    open(source, "w").write(change(text, old, new))
    flags = [word for word in words[1:] if re.match(r"-(I|D|f|std)", word)]
    flags += ["-w", "-O1", "-I" + ROOT]
    out = source.replace(".c", ".o")
    subprocess.run([words[0], *flags, "-c", source, "-o", out], check=True)
    _, main = command_of(build, subject.main)
    program = os.path.join(scratch, "bounds")
    sanitize = [word for word in words if word.startswith("-fsanitize")]
    libraries = [os.path.join(build, f"lib{name}.a") for name in subject.libraries]
    subprocess.run([words[0], *sanitize, main, out, "-Wl,--start-group",
                    *libraries, "-Wl,--end-group", "-lz", "-lm", "-ldl",
                    "-lpthread", "-o", program], check=True)
    return program


UNCHECKED = "no duals are named"


def bounds_of(program, cases, column):
    """(model, bound, what the recheck says) for each case."""
    try:
        done = subprocess.run([program, *map(str, cases)],
                              capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return []
    rows = [line.split(" ", 4) for line in done.stdout.splitlines()]
    return [(row[0], int(row[column]), row[4]) for row in rows]


def check(subject, build, fault, cases, right):
    """What the fault did; whether that is a failure."""
    with tempfile.TemporaryDirectory() as scratch:
        program = compile_fault(subject, build, fault, scratch)
        faulty = bounds_of(program, cases, 3)
    # A fault may take values away, so that the search writes no duals: then
    # `dnnc verify` checks nothing, says so, and ends with 1.
    raised = [(new, old) for new, old in zip(faulty, right)
              if new[1] > old[1] * (1 + 1e-6) and UNCHECKED not in new[2]]
    passed = [new for new, old in raised if new[2] != "refused"]
    if passed:
        return f"NOT REFUSED: {passed}", True
    if not raised:
        return "raises no bound", True
    (model, bound, _), old = raised[0]
    return (f"refused: {model} by {100 * (bound / old[1] - 1):.3g} %, "
            f"{len(raised)} of {len(right)} cases"), False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--from", type=int, default=0, dest="begin")
    parser.add_argument("--to", type=int)
    parser.add_argument("--cases", nargs=2, default=[])
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    subject = Subject(options.engine)
    right = bounds_of(os.path.join(build, subject.program), options.cases,
                      subject.right)
    bad = [row for row in right if row[1] <= 0 or row[2] != "holds"]
    if bad or not right:
        sys.exit(f"faults.py: without faults: {bad}")
    n_failed = 0
    faults = list(enumerate(read_faults(subject)))[options.begin:options.to]
    for number, fault in faults:
        said, is_failure = check(subject, build, fault, options.cases, right)
        n_failed += is_failure and not (options.keep and "raises no" in said)
        print(f"{number} {fault[0]}: {fault[1]} => {fault[2]}\n    {said}",
              flush=True)
    print(f"{len(faults)} faults, {n_failed} failures")
    sys.exit(n_failed > 0)


main()

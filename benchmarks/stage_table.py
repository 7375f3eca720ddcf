"""The table of plans that `dnnc plan --search stages` finds at full size.

    python3 benchmarks/stage_table.py DNNC FILE [--seconds N] [ROW ...]

FILE keeps a line of JSON for each row that is done, and a later run goes on with
those that it lacks: a run may end at any time.  Of FILE the table is printed,
with all rows that it has.  Without names all rows are run, the small ones
first.  After N seconds of wall clock (3,600) a search is told to stop, and its
row has the best plan so far.

A row has the plan in words, its step, bound, gap and search gap, the load that
binds the bound, processor time (user and system) of `plan` and of `simulate` of
the plan, and their quotient.  Where nothing fits it has what is missing.

Exit status 1: a search ended in another way, or takes more than 12 times as
long as `simulate` and more than 3 s.
"""
import argparse
import json
import os
import re
import sys
import tempfile

from bench_plan import command, run

CNN = ("vgg16", "alexnet", "resnet50", "inception_v3")
CLUSTERS = ("pipedream-a", "pipedream-b", "pipedream-c", "mixed", "islands")
LLAMA405 = ["C=16384", "F=53248", "L=126", "H=16", "B=2048"]
GPT_1T = ["C=25600", "H=160", "L=128", "V=51200"]
MOST_TIMES, MOST_SECONDS = 12, 3  # of processor time; whichever is more

ROWS = {f"{model}-{cluster}": (model, [], cluster, None)
        for model in CNN for cluster in CLUSTERS}
LOOPS = [(model, cluster) for model in ("s2vt", "gnmt8")
         for cluster in ("pipedream-a", "pipedream-b", "pipedream-c")]
ROWS.update({f"{model}-{cluster}": (model, [], cluster, None)
             for model, cluster in LOOPS})
for ranks in (64, 256, 1024):
    ROWS[f"gpt3-{ranks}-80g"] = ("gpt3", [], "a100x1024", ranks)
    ROWS[f"gpt3-{ranks}-40g"] = ("gpt3", [], "a100_40gx1024", ranks)
ROWS["mixtral-256"] = ("moe", [], "h100x256", 256)
ROWS["gpt-1t-3072"] = ("gpt3", GPT_1T, "a100x3072", None)
ROWS["llama405b-16384"] = ("llama", LLAMA405, "h100x16384", None)


def stopped_after(seconds, words):
    return ["timeout", "--preserve-status", "-s", "INT", str(seconds), *words]


def limit_of(plan):
    """The load that binds the bound, and its setting."""
    with open(plan, encoding="utf-8") as file:
        found = re.search(r'^ *limit *= "(.*)"$', file.read(), re.M)
    return found[1] if found else ""


def measure(dnnc, row, seconds):
    """What FILE keeps of a row."""
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "found.plan")
        words = command(dnnc, "plan", row, "--search", "stages", "--json",
                        "--quiet", "-o", plan)
        done, cpu, _ = run(stopped_after(seconds, words))
        # 130: it was stopped, and has written its best plan so far.
        if done.returncode not in (0, 130) or not os.path.exists(plan):
            lines = done.stderr.splitlines() or ["without a word"]
            return {"exit": done.returncode, "cpu_s": cpu, "message": lines[0]}
        found = json.loads(done.stdout)
        priced, simulate_cpu, _ = run(command(dnnc, "simulate", row, "--plan",
                                              plan, "--json"))
        step = json.loads(priced.stdout)["step_s"] if priced.stdout else None
        kept = {key: found.get(key) for key in (
            "words", "step_s", "bound_s", "gap", "search_gap", "candidates",
            "stopped", "fits")}
        return {"exit": 0, "cpu_s": cpu, "simulate_cpu_s": simulate_cpu,
                "is_same_step": step == found["step_s"],
                "limit": limit_of(plan), **kept}


def fault_of(row):
    if row["exit"] == 2:
        return None if "missing" in row["message"] else "no bytes are named"
    if row["exit"] != 0:
        return f"exit {row['exit']}"
    if not row["is_same_step"]:
        return "simulate gives another step"
    if row["cpu_s"] > max(MOST_SECONDS, MOST_TIMES * row["simulate_cpu_s"]):
        return "too long"
    return None


def percent(share):
    return "" if share is None else f"{100 * share:.1f} %"


def seconds_of(time):
    return "" if time is None else f"{time:.4g} s"


def line_of(name, row):
    if row["exit"] != 0:
        return (f"| {name} | exit {row['exit']}: {row['message']} | | | | | | "
                f"{row['cpu_s']:.1f} s | | |")
    times = row["cpu_s"] / row["simulate_cpu_s"]
    stop = ", stopped" if row["stopped"] else ""
    limit = row["limit"].replace(" (", ": ").rstrip(")")
    return (f"| {name} | {row['words']}{stop} | {seconds_of(row['step_s'])} | "
            f"{seconds_of(row['bound_s'])} | {percent(row['gap'])} | "
            f"{percent(row['search_gap'])} | {limit} | {row['cpu_s']:.1f} s | "
            f"{row['simulate_cpu_s']:.2f} s | {times:.0f} |")


def read_rows(path):
    rows = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                kept = json.loads(line)
                rows[kept.pop("row")] = kept
    return rows


def print_table(rows):
    print("| row | plan | step | bound | gap | search gap | what binds | "
          "`plan` | `simulate` | times |")
    print("|" + "---|" * 10)
    for name in ROWS:
        if name in rows:
            print(line_of(name, rows[name]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dnnc")
    parser.add_argument("file")
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    words = parser.parse_intermixed_args()
    dnnc, rows = os.path.abspath(words.dnnc), read_rows(words.file)
    for name in words.rows or ROWS:
        if name in rows:
            continue
        rows[name] = measure(dnnc, ROWS[name], words.seconds)
        with open(words.file, "a", encoding="utf-8") as file:
            file.write(json.dumps({"row": name, **rows[name]}) + "\n")
    print_table(rows)
    faults = {name: fault_of(row) for name, row in rows.items()}
    for name, fault in faults.items():
        if fault:
            print(f"FAULT: {name}: {fault}")
    sys.exit(any(faults.values()))


if __name__ == "__main__":
    main()

"""Published training runs in pipeline stages: predicted against published steps.

    python3 benchmarks/staged_runs.py DNNC DATA FOLDER [--plans PLANS] [--rule]
        [ROW ...]

DATA has megatron-sc21-table1.csv and llama3-parallelism.csv.  This writes a plan
and a cluster for each row into FOLDER, asks `dnnc simulate` and prints a table.
Constants are those of one_mesh.py; nothing is fitted here.  A file of PLANS with
the name of a plan is taken in its place, as one that a search has found.  ROW is
a row by name, as megatron-39b; all without it.

Rule of the Megatron rows: micro-batches and virtual stages are those with which
the authors say they ran the table (examples/sc21/run_table_1.sh of Megatron-LM).
--rule takes another one that knows no row, to see what depends on it: micro-
batches of one sequence, and three virtual stages where they divide the blocks.

Beside the prediction stands what a constant rate of the four rows without stages
says.  The Llama 3 rows are a check: each chunk has one block, the first one the
table of words and the last one the head (section 3.3.2 of that paper).

Exit status 1: the mean error of the Megatron rows is above 7 %, one is above
15 %, or the constant rate is better.
"""
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from one_mesh import NETWORKS, NODE, ROOT, ask, mean, read_rows, sizes, write

MOST_MEAN, MOST = 0.07, 0.15
JOBS = 2
# By parameters in billions: virtual stages, sequences of a micro-batch.
SCRIPT = {"39.1": (1, 4), "76.1": (3, 2), "145.6": (2, 2), "310.1": (2, 1),
          "529.6": (3, 1), "1008.0": (1, 1)}
# FLOPs of a step over its published rate: 6 for each parameter and token, and
# attention over half of the square (published rates do not say).
LLAMA = {"blocks": 126, "width": 16384, "parameters": 405.85e9}
LLAMA_WORDS = "llama.dnn C=16384 F=53248 L=126 H=16"


def rule_of(row):
    """Virtual stages and sequences of a micro-batch."""
    if "--rule" not in sys.argv:
        return SCRIPT[row["params_billion"]]
    blocks, pipe = int(row["layers"]), int(row["pipeline_parallel"])
    return (3 if blocks // pipe % 3 == 0 else 1), 1


def cuts(paths):
    return [f"cut after {path}" for path in paths]


def plan_text(mesh, virtual, microbatches, lines):
    schedule = f"interleaved(v = {virtual})" if virtual > 1 else "1f1b"
    axes = "; ".join(f"{axis} = {n}" for axis, n in mesh if n > 1)
    body = "".join(f"  {line}\n" for line in (
        f"schedule = {schedule}", f"microbatches = {microbatches}", *lines))
    return f"mesh {{ {axes} }}\nplan {{\n{body}}}\n"


def cluster_text(device, kind, gpus, network):
    return (f"cluster published {{\n  device = {device}\n"
            f"  level node {{ count = 8; {NODE[kind]} }}\n"
            f"  level pod {{ count = {gpus // 8}; {network} }}\n}}\n")


# ---- rows ----

def megatron(row):
    pipe, blocks = int(row["pipeline_parallel"]), int(row["layers"])
    data, batch = int(row["data_parallel"]), int(row["batch_size"])
    virtual, micro = rule_of(row)
    each = blocks // (pipe * virtual)
    lines = [*cuts(f"block[{i}]" for i in range(each - 1, blocks - 1, each)),
             "shard H, F, V over tensor", "remat block"]
    mesh = [("pipe", pipe), ("data", data),
            ("tensor", int(row["tensor_parallel"]))]
    gpus = int(row["gpus"])
    return {
        "name": f"megatron-{float(row['params_billion']):.0f}b",
        "model": f"gpt3.dnn B={batch} T=2048 V=51200 C={row['hidden']} "
                 f"H={row['attention_heads']} L={blocks}",
        "plan": plan_text(mesh, virtual, batch // (data * micro), lines),
        "cluster": cluster_text("a100_80g", "a100", gpus,
                                NETWORKS["Megatron-LM 2021"]),
        # Scores are stored: dot, softmax and dot remain three operators.
        "more": ["--disable", "attention"], "gpus": gpus,
        "step": float(row["iter_time_s_derived"]),
        "rate": float(row["tflops_per_gpu"])}


def llama(row):
    pipe, context = int(row["pp"]), int(row["cp"])
    data, batch = int(row["dp"]), int(row["batch_per_dp"])
    length, gpus = int(row["seq_len"]), int(row["gpus"])
    blocks = LLAMA["blocks"]
    sequence = "(seq, tensor)" if context > 1 else "tensor"
    lines = ["zero = 1", "reduce = bf16", "bucket = 1GB", "prefetch = 1GB",
             *cuts(["x[0]", *(f"block[{i}]" for i in range(blocks))]),
             f"shard T over {sequence}", "shard G, F, V over tensor",
             *(["attention = gather"] if context > 1 else [])]
    mesh = [("pipe", pipe), ("data", data), ("seq", context),
            ("tensor", int(row["tp"]))]
    work = (6 * LLAMA["parameters"]
            + 6 * blocks * LLAMA["width"] * length) * batch * data * length
    return {
        "name": f"llama3-{gpus}-{length // 1024}k",
        "model": f"{LLAMA_WORDS} T={length} B={batch * data}",
        "plan": plan_text(mesh, (blocks + 2) // pipe, batch, lines),
        "cluster": cluster_text("h100_sxm", "h100", gpus,
                                NETWORKS["torchtitan June 2025 compile"]),
        "more": [], "gpus": gpus, "rate": float(row["tflops_per_gpu"]),
        "step": work / gpus / float(row["tflops_per_gpu"]) / 1e12}


# ---- predictions ----

def command(dnnc, run, folder, plans):
    base = os.path.join(folder, run["name"])
    plan = write(base + ".plan", run["plan"])
    found = os.path.join(plans, run["name"] + ".plan") if plans else ""
    model, *overrides = run["model"].split()
    return [dnnc, "simulate", os.path.join(ROOT, "models", model), *overrides,
            "--plan", found if os.path.exists(found) else plan, "--cluster",
            write(base + ".cluster", run["cluster"]), *run["more"], "--json"]


def timed(words):
    begin = time.monotonic()
    return ask(words), time.monotonic() - begin


def show(runs, priced, others):
    """Returns the errors."""
    errors = []
    for run, (price, seconds), other in zip(runs, priced, others):
        errors.append(price["step_s"] / run["step"] - 1)
        peak = max(rank["peak_bytes"] for rank in price["ranks"]) / 1e9
        beside = f"{100 * other:+7.1f} %" if other is not None else " " * 9
        print(f"{run['name']:20} {run['step']:7.3f} s {price['step_s']:7.3f} s "
              f"{100 * errors[-1]:+5.1f} % {beside}  "
              f"{100 * price['bubble']:4.1f} %  {peak:5.1f} GB"
              f"{'' if price['fits'] else '!'}  {seconds:.1f} s")
    return errors


def sustained_rate(rows):
    """Of a GPU, in the rows without stages."""
    return mean([float(row["tflops_per_gpu"]) for row in rows
                 if row["pipeline_parallel"] == "1"])


def main():
    words = [w for w in sys.argv[1:] if w != "--rule"]
    plans = words.pop(words.index("--plans") + 1) if "--plans" in words else ""
    words = [w for w in words if w != "--plans"]
    if len(words) < 3:
        sys.exit(__doc__)
    dnnc, data, folder, *names = words
    os.makedirs(folder, exist_ok=True)
    rows = read_rows(os.path.join(data, "megatron-sc21-table1.csv"))
    runs = [megatron(r) for r in rows if int(r["pipeline_parallel"]) > 1]
    checks = [llama(r) for r in
              read_rows(os.path.join(data, "llama3-parallelism.csv"))]
    if names:
        runs = [run for run in runs if run["name"] in names]
        checks = [run for run in checks if run["name"] in names]
    asked = [command(dnnc, run, folder, plans) for run in runs + checks]
    with ThreadPoolExecutor(JOBS) as pool:
        priced = list(pool.map(timed, asked))
    print(f"{'run':20} {'published':>9} {'predicted':>9} {'error':>7} "
          f"{'constant':>9}  bubble  memory     simulate")
    rate, n = sustained_rate(rows), len(runs)
    others = [run["rate"] / rate - 1 for run in runs]
    errors = [abs(e) for e in show(runs, priced[:n], others)]
    show(checks, priced[n:], [None] * len(checks))
    if not runs:
        return
    print(f"mean error of the {n} rows of Megatron-LM {sizes(errors)}")
    print(f"constant rate {rate:.0f} TFLOP/s: {sizes(others)}; of the rates "
          + sizes([rate / run["rate"] - 1 for run in runs]))
    other = mean([abs(rate / run["rate"] - 1) for run in runs])
    is_good = (mean(errors) <= MOST_MEAN and max(errors) <= MOST
               and (bool(names) or mean(errors) < other))
    sys.exit(0 if is_good else 1)


main()

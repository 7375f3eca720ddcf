"""What orders.py asks about stages of pipelines.  Figures beside the predictions
are published; those that nobody read off their source are marked "from memory".

Pipelines here update once a step and wait for it (1f1b, interleaved, gpipe, zbh1,
zbh2): no weight versions.  PipeDream's own do not wait, so what it gains without
that wait is bounded by the work of the busiest rank, which is printed beside.
"""
from math import log

from order_tables import cluster, ethernet, nvlink, plan

SELENE = ("pod {{ count = {}; link = 24GB/s; links = 8; latency = 9.6us; "
          "kind = fat_tree }}")
GPT = "gpt3.dnn V=51200 --disable attention"
PCIE = "node { count = 8; link = 12GB/s; latency = 5us; kind = pcie }"


def cuts(blocks, stages):
    """Equal stages of blocks."""
    each = blocks // stages
    return [f"cut after block[{i}]"
            for i in range(each - 1, blocks - 1, each)]


def balanced(blocks, stages, head):
    """The head counts as so many blocks."""
    ends = [round(i * (blocks + head) / stages) for i in range(1, stages)]
    return [f"cut after block[{end - 1}]" for end in ends]


def pipeline(mesh, schedule, *lines):
    return plan(mesh, f"schedule = {schedule}", *lines)


def selene(nodes):
    return cluster("a100_80g", nvlink("300GB/s"), SELENE.format(nodes))


def listed(values, form="{:.2f}"):
    return ", ".join(form.format(value) for value in values)


def rises(values):
    return all(a < b for a, b in zip(values, values[1:]))


# ---- Megatron-LM (Narayanan et al. 2021); settings of its examples/sc21 ----

# Sums over the tensor axis are sent in 16 bits.
MEGATRON = ["shard H, F, V over tensor", "remat block", "reduce = bf16"]


def interleaving(orders):
    batches = [12, 24, 36, 48, 60]
    orders.write({
        "selene12.cluster": selene(12),
        "plain.plan": pipeline("pipe = 12; tensor = 8", "1f1b",
                               *cuts(96, 12), *MEGATRON),
        "interleaved.plan": pipeline("pipe = 12; tensor = 8",
                                     "interleaved(v = 4)", *cuts(96, 48),
                                     *MEGATRON)})
    found = orders.table(
        "Interleaving, 175B on 96 A100, 12 stages x tensor 8, batches of 12 to 60 "
        "(Narayanan et al. 2021, figure 12)",
        [("selene12", how, f"{GPT} B={batch} --microbatches {batch}")
         for batch in batches for how in ("plain", "interleaved")])
    gains = [one["step_s"] / four["step_s"]
             for one, four in zip(found[::2], found[1::2])]
    orders.judge("four stages a rank are faster than one at a batch of 12, and the "
                 f"gap closes as it grows: {listed(gains)} x (published: the same)",
                 gains[0] > 1 and rises(gains[::-1]))
    print("Published, they are ahead up to a batch of 60, with messages of which "
          "each rank of the tensor axis sends its share (section 4.1); here each "
          "sends all of it.")


def grid(orders):
    sizes, batches = [2, 4, 8, 16, 32], [32, 128]
    orders.write({"selene8.cluster": selene(8)})
    orders.write({
        f"grid{p}.plan": pipeline(f"pipe = {p}; tensor = {64 // p}", "1f1b",
                                  *cuts(32, p), *MEGATRON) for p in sizes})
    for batch in batches:
        found = orders.table(
            "Pipeline x tensor, 162B on 64 A100, micro-batches of one, batch of "
            f"{batch} (Narayanan et al. 2021, figure 13)",
            [("selene8", f"grid{p}", f"{GPT} C=20480 H=128 L=32 B={batch} "
              f"--microbatches {batch}") for p in sizes])
        steps = [price["step_s"] for price in found]
        best = sizes[steps.index(min(steps))]
        orders.judge(f"the best of pipe 2 to 32 x tensor 32 to 2 is {best} x "
                     f"{64 // best} (published: 8 x 8, tensor parallelism "
                     "fills the node)", best == 8,
                     known=f"8 x 8 takes {100 * (steps[2] / min(steps) - 1):.0f} "
                     "% longer" if steps[2] < 1.05 * min(steps) else None)


def microbatch(orders):
    micro, batches = [1, 2, 4, 8], [128, 512]
    orders.write({"selene8.cluster": selene(8),
                  "eight.plan": pipeline("pipe = 8; tensor = 8", "1f1b",
                                         *cuts(32, 8), *MEGATRON)})
    for batch in batches:
        found = orders.table(
            "Micro-batches of 1, 2, 4 and 8, 91B on 64 A100, pipe 8 x tensor 8, "
            f"batch of {batch} (Narayanan et al. 2021, figure 16)",
            [("selene8", "eight", f"{GPT} C=15360 H=128 L=32 B={batch} "
              f"--microbatches {batch // size}") for size in micro])
        steps = [price["step_s"] for price in found]
        best = micro[steps.index(min(steps))]
        orders.judge(f"the best micro-batch has {best} sequences (published: 2), "
                     "larger ones are slower", best == 2 and rises(steps[1:]))


def zero3_and_stages(orders):
    gpus, published = [384, 768, 1536], [153 / 144, 149 / 88, 141 / 44]
    for n in gpus:
        orders.write({
            f"selene{n // 8}.cluster": selene(n // 8),
            f"zero{n}.plan": plan(f"data = {n}", "zero = 3", "remat block"),
            f"stages{n}.plan": pipeline(
                f"pipe = 12; data = {n // 96}; tensor = 8",
                "interleaved(v = 2)", *cuts(96, 24), *MEGATRON)})
    found = orders.table(
        "ZeRO 3 against tensor 8 x pipe 12, 175B, batch of 1,536 on 384, 768 and "
        "1,536 A100 (Narayanan et al. 2021, table 2)",
        [(f"selene{n // 8}", how + str(n), f"{GPT} B=1536 --microbatches "
          f"{1 if how == 'zero' else 1536 * 96 // n}")
         for n in gpus for how in ("zero", "stages")])
    gains = [zero["step_s"] / stages["step_s"]
             for zero, stages in zip(found[::2], found[1::2])]
    orders.judge("the pipeline gains as the batch of a GPU falls, and is ahead "
                 f"with one sequence a GPU: {listed(gains)} x (published, from "
                 f"memory: {listed(published)})", rises(gains)
                 and gains[-1] > 1)


# ---- GPipe and zero bubbles ----

def gpipe(orders):
    model = ("gpt2.dnn precision.compute=f32 T=512 V=32000 C=1024 H=16 L=48 "
             "B=512")
    parts = [2, 4, 8]
    orders.write({"pcie.cluster": cluster("v100_16g", PCIE)})
    orders.write({f"gpipe{p}.plan": pipeline(f"pipe = {p}", "gpipe",
                                             *balanced(48, p, 2))
                  for p in parts})
    counts = [(p, m) for p in parts for m in (1, p, 4 * p, 32)]
    found = orders.table(
        "GPipe, a transformer of 48 layers on 2, 4 and 8 V100 over PCIe; "
        "micro-batches 1, p, 4 p and 32 (Huang et al. 2018, tables 2 and 3)",
        [("pcie", f"gpipe{p}", f"{model} --microbatches {m}")
         for p, m in counts])
    speed = {count: found[0]["step_s"] / price["step_s"]
             for count, price in zip(counts, found)}
    linear = {(p, m): speed[p, m] / p for p, m in counts}
    print("throughput over 2 parts with one micro-batch: one "
          + listed([speed[p, 1] for p in parts]) + " (published: 1, 1.07, 1.3), "
          + "32 " + listed([speed[p, 32] for p in parts])
          + " (published: 1.8, 3.4, 6.3)")
    orders.judge("near linear in 2, 4 and 8 parts for m = 4 p: "
                 + listed([100 * linear[p, 4 * p] for p in parts], "{:.0f} %")
                 + " of linear (published, m = 32: 90, 85, 79 %)",
                 all(linear[p, 4 * p] > 0.67 for p in parts))
    orders.judge("and not for m = p: "
                 + listed([100 * linear[p, p] for p in parts], "{:.0f} %"),
                 all(linear[p, p] < 0.7 and linear[p, 4 * p] > 1.2 * linear[p, p]
                     for p in parts))


def zero_bubble(orders):
    counts = [24, 32, 64]
    ends = [f"cut after block[{i}]" for i in (1, 4, 7, 10, 13, 16, 19)]
    orders.write({"node.cluster": cluster("a100_80g", nvlink("300GB/s"))})
    schedules = ["1f1b", "zbh1", "zbh2"]
    orders.write({f"{how}.plan": pipeline("pipe = 8", how, *ends)
                  for how in schedules})
    found = orders.table(
        "Zero bubbles over 1f1b, GPT of 1.5B on 8 A100, 24, 32 and 64 micro-"
        "batches of 6 (Qi et al. 2023)",
        [("node", how, f"gpt3.dnn T=1024 V=50304 C=2304 H=24 L=22 B={6 * m} "
          f"--microbatches {m}") for m in counts for how in schedules])
    steps = [price["step_s"] for price in found]
    for name, at in (("zbh1", 1), ("zbh2", 2)):
        gains = [100 * (steps[i] / steps[i + at] - 1)
                 for i in range(0, len(steps), 3)]
        orders.judge(f"{name} is faster than 1f1b, less so with more micro-"
                     f"batches: {listed(gains, '{:.1f} %')} (published: up to 23 "
                     "% with an update that does not wait)",
                     min(gains) > 0 and rises(gains[::-1]))


# ---- PipeDream ----

def replicas(first, rest, n, microbatches):
    """Stage 0 on all ranks but one, whose replicas share the batch."""
    return plan_of_stages(microbatches,
                          f"stage 0: {first} on 0..{n - 2} as (data = {n - 1})",
                          f"stage 1: {rest} on {n - 1}")


def plan_of_stages(microbatches, *stages):
    return "plan {\n" + "".join(f"  {line}\n" for line in (
        "schedule = 1f1b", f"microbatches = {microbatches}", *stages)) + "}\n"


VGG = "unit, adaptive_avgpool", "linear"
ALEXNET = "conv2d, adaptive_avgpool", "linear"
INCEPTION = ("unit, mixed_a, reduce_a, mixed_b, reduce_b, side_head, mixed_c[0]",
             "mixed_c[1]")
GNMT4 = ["lstm[2]", "lstm[4]", "x[2][0]"]
GNMT12 = ["dropout[0]", "lstm[0]", "lstm[1]", "lstm[2]", "m[2][0]", "m[2][1]",
          "lstm[4]", "look", "lstm[5]", "x[2][0]", "x[2][1]"]
PLACES = {
    "a": cluster("v100_16g", "server { count = 4; link = 12GB/s; latency = 5us; "
                 "kind = pcie }", ethernet(4, "10Gb/s")),
    "b": cluster("v100_16g", "server { count = 8; link = 25GB/s; links = 6; "
                 "latency = 2us; kind = mesh }", ethernet(2, "25Gb/s")),
    "c": cluster("titan_x", ethernet(4, "40Gb/s")),
    "v100": cluster("v100_16g", ethernet(8, "10Gb/s")),
    "titan": cluster("titan_x", ethernet(8, "25Gb/s")),
}
LINE = {"a": 10, "b": 25, "c": 40, "v100": 10, "titan": 25, "server": 96}
STRAIGHT4 = pipeline("pipe = 4", "1f1b", "microbatches = 8",
                     *(f"cut after {path}" for path in GNMT4))
# Name, cluster, ranks, model with a batch, plan, published factor and its source.
# Batches of a GPU: VGG-16 64 (v1: 32), AlexNet 256, GNMT 64, S2VT 80,
# Inception-v3 32.
CASES = [
    ("vgg-a", "a", 16, "vgg16.dnn N=960", replicas(*VGG, 16, 4), 5.28,
     "SOSP'19, 15-1"),
    ("vgg-b", "b", 16, "vgg16.dnn N=960", replicas(*VGG, 16, 4), 2.98,
     "SOSP'19, 15-1"),
    ("alexnet-a", "a", 16, "alexnet.dnn N=3840", replicas(*ALEXNET, 16, 8),
     4.92, "SOSP'19, 15-1"),
    ("alexnet-b", "b", 16, "alexnet.dnn N=3840", replicas(*ALEXNET, 16, 8),
     2.04, "SOSP'19, 15-1"),
    ("gnmt-4", "a", 4, "gnmt8.dnn B=256", STRAIGHT4, 1.5,
     "SOSP'19, straight, from memory"),
    ("gnmt-12", "a", 12, "gnmt8.dnn B=768",
     pipeline("pipe = 12", "1f1b", "microbatches = 24",
              *(f"cut after {path}" for path in GNMT12)), 2.95,
     "SOSP'19, straight, from memory"),
    ("s2vt", "c", 4, "s2vt.dnn B=320", plan_of_stages(
        4, "stage 0: linear[0], lstm[0] on 0..1 as (data = 2)",
        "stage 1: lstm[1] on 2", "stage 2: linear[1] on 3"), 3.01,
     "SOSP'19, 2-1-1"),
    ("vgg-8", "v100", 8, "vgg16.dnn N=224", replicas(*VGG, 8, 4), 5.12,
     "arXiv v1, 7-1"),
    ("vgg-8-titan", "titan", 8, "vgg16.dnn N=224", replicas(*VGG, 8, 4), 2.99,
     "arXiv v1, 7-1"),
    ("inception-8", "v100", 8, "inception_v3.dnn N=224 bn_group=4",
     replicas(*INCEPTION, 8, 2), 1.45, "arXiv v1, 7-1"),
    ("alexnet-8", "v100", 8, "alexnet.dnn N=1792", replicas(*ALEXNET, 8, 4),
     None, "arXiv v1, no factor published"),
]
# Data parallelism is the published plan.
DATA = [("resnet-a", "a", 16, "resnet50.dnn N=480 bn_group=2",
         replicas("conv_bn, bottleneck[0..2]", "bottleneck[3], linear", 16, 4)),
        ("resnet-b", "b", 16, "resnet50.dnn N=480 bn_group=2",
         replicas("conv_bn, bottleneck[0..2]", "bottleneck[3], linear", 16, 4)),
        ("gnmt-16", "b", 16, "gnmt8.dnn B=960",
         pipeline("pipe = 4; data = 4", "1f1b", "microbatches = 8",
                  *(f"cut after {path}" for path in GNMT4))),
        ("inception-titan", "titan", 8, "inception_v3.dnn N=224 bn_group=4",
         replicas(*INCEPTION, 8, 2))]


def link_of(case):
    """The level that a plan crosses, and its line rate in Gbit/s."""
    name, where, ranks, *_ = case
    is_server = where == "a" and ranks <= 4
    return ("server" if is_server else "network",
            LINE["server" if is_server else where])


def total_bytes(price):
    return sum(r["ranks"] * r["bytes_sent"] for r in price["ranks"])


def busiest(price):
    """The step of a pipeline that never waits for an update."""
    return max(r["compute_s"] for r in price["ranks"])


def factor_at(orders, case, rate):
    """Of the time of data parallelism over that of the plan, at a rate of the
    network in Gbit/s."""
    name, where, ranks, model, *_ = case
    model += f" --what-if link.{link_of(case)[0]}={rate:.4f}Gb/s"
    data, staged = orders.ask_all([(where, f"data{ranks}", model),
                                   (where, name, model)])
    return data["step_s"] / staged["step_s"]


def rate_of_factor(orders, case, factor):
    """The rate of the links at which the factor is this, and the largest factor
    down to a 256th of the line rate; None: it is nowhere so large."""
    rate, value, most = link_of(case)[1], None, 0
    for _ in range(9):
        before, value = value, factor_at(orders, case, rate)
        most = max(most, value)
        if value >= factor:
            if before is None:
                return rate, most
            share = log(factor / before) / log(value / before)
            return 2 * rate / 2 ** share, most
        rate /= 2
    return None, most


def unhurried(orders, case):
    """The time of the busiest rank where no update is waited for, with the micro-
    batches that PipeDream has: those of one GPU under data parallelism."""
    name, where, ranks, model, text, *_ = case
    n = 1 if "data =" in text and "stage 2" not in text else ranks
    n = 2 if "stage 2" in text else n
    return busiest(orders.ask((where, name, f"{model} --microbatches {n}")))


def write_places(orders, cases):
    orders.write({f"{name}.cluster": text for name, text in PLACES.items()})
    orders.write({f"{case[0]}.plan": case[4] for case in cases})
    orders.write({f"data{case[2]}.plan": plan(f"data = {case[2]}")
                  for case in cases})


def both(orders, title, cases):
    write_places(orders, cases)
    found = orders.table(title, [(where, how, model)
                                 for name, where, n, model, *_ in cases
                                 for how in (f"data{n}", name)])
    return list(zip(cases, found[::2], found[1::2]))


def why_slower(data, bound, rate):
    """Why data parallelism may be ahead at line rate; None: no reason."""
    if bound > 1:
        return "the wait for the update takes more than the stages gain"
    if data["waits"] < 0.1:
        return ("data parallelism hides its sums at line rate, and the stages are "
                "not equal")
    return "data parallelism hides its sums at line rate" if rate else None


def pipedream(orders):
    rows = both(orders, "PipeDream's plans over data parallelism, synchronous "
                "1f1b (Narayanan et al. 2019, table 1; Harlap et al. 2018)",
                CASES)
    print("A step waits for the update of all stages: there are no weight "
          "versions yet.")
    for case, data, staged in rows:
        name, published, source = case[0], case[5], case[6]
        gain = data["step_s"] / staged["step_s"]
        bound = data["step_s"] / unhurried(orders, case)
        rate, _ = rate_of_factor(orders, case, 1)
        words = [f"{gain:.2f} x at {link_of(case)[1]} Gbit/s, at most {bound:.2f} x "
                 "if no update is waited for"]
        if gain <= 1 and rate:
            words.append(f"faster below {rate:.1f} Gbit/s")
        if published:
            at, most = rate_of_factor(orders, case, published)
            words.append(f"published {published:.2f} x ({source}), "
                         + (f"from {at:.2f} Gbit/s on" if at else
                            f"here {most:.2f} x on a slow network"))
        else:
            words.append(f"no factor published ({source})")
        orders.judge(f"{name}: " + ", ".join(words), gain > 1,
                     known=why_slower(data, bound, rate))
    for case, data, staged in rows:
        if case[0] in ("vgg-8", "vgg-8-titan"):
            saved = 1 - total_bytes(staged) / total_bytes(data)
            orders.judge(f"{case[0]}: all ranks send {100 * saved:.1f} % fewer "
                         "bytes (published: 95 %)", saved >= 0.9)


def pipedream_data(orders):
    rows = both(orders, "Where PipeDream chose data parallelism, against a "
                "written pipeline (Narayanan et al. 2019; Harlap et al. 2018)",
                DATA)
    for case, data, staged in rows:
        gain = staged["step_s"] / data["step_s"]
        orders.judge(f"{case[0]}: data parallelism is faster, {gain:.2f} x "
                     "(published: it is the plan)", gain > 1)


def kind_of(text):
    """The mesh of a plan in words."""
    mesh = text.split("mesh {")[1].split("}")[0].split() if "mesh {" in text else []
    sizes = " x ".join(f"{axis} {n}" for axis, n in zip(mesh[::3], mesh[2::3]))
    return sizes or "stages with meshes of their own"


def found(orders):
    """The search looks for what PipeDream looked for."""
    write_places(orders, CASES + DATA)
    print("\nPlans that `dnnc plan --search stages` finds, over data parallelism "
          "and over the published stages (PipeDream), at line rate")
    for case in CASES + DATA:
        name, where, n, model = case[:4]
        if not orders.search(where, n, model, "found-" + name):
            orders.judge(f"{name}: the search finds a plan", False)
            continue
        data, staged, best = orders.ask_all(
            [(where, how, model) for how in (f"data{n}", name, "found-" + name)])
        words = (f"{name}: {kind_of(orders.text('found-' + name))}, "
                 f"{data['step_s'] / best['step_s']:.2f} x, the published stages "
                 f"{data['step_s'] / staged['step_s']:.2f} x")
        published = case[5] if len(case) > 5 else None
        if published:
            at, most = rate_of_factor(orders, ("found-" + name, *case[1:]),
                                      published)
            words += (f", published {published:.2f} x, "
                      + (f"from {at:.2f} Gbit/s on" if at else
                         f"here {most:.2f} x on a slow network"))
        orders.judge(words, best["step_s"] <= 1.0001 * data["step_s"]
                     and best["step_s"] <= 1.0001 * staged["step_s"],
                     known=None)


def stall(orders):
    """How far VGG-16 is from the published stall."""
    found = orders.table(
        "VGG-16, data parallelism on 32 V100 at 10 Gbit/s, 64 images a worker "
        "(Narayanan et al. 2019, figure 1)",
        [("v100_16g", "data32", "vgg16.dnn N=2048" + more)
         for more in ("", *(f" --what-if link.network={rate}Gb/s"
                            for rate in (5, 2.5, 1.25)))])
    shares = [100 * price["waits"] for price in found]
    print(f"At 10 Gbit/s {shares[0]:.0f} % of a step is waiting, not the "
          "published 85 %, because gradients are summed at line rate beside the "
          "backward pass; at 5, 2.5 and 1.25 Gbit/s it is "
          + listed(shares[1:], "{:.0f} %") + ".")


CHECKS = [interleaving, grid, microbatch, zero3_and_stages, gpipe, zero_bubble,
          pipedream, pipedream_data, found, stall]

#!/bin/bash
# Looks at the cost of a plan from all sides: on a changed cluster (--what-if),
# as a timeline (--trace), by path, by line and as a page (show), and as the
# difference of two plans (diff).
. "$(dirname "$0")/lib.sh"
plans=$root/benchmarks/plans systems=$root/benchmarks/systems
printf 'cluster two {\n device = one_core\n level node { count = 4; link = 100MB/s; latency = 50us }\n}\n' >two.cluster
printf 'device one_core { base = cpu; memory = 1GiB }\n' >>two.cluster

wrong() { # MESSAGE COMMAND...
  local message=$1
  shift
  "$@" >out 2>message && fail "'$*' ends well"
  grep -q -- "$message" message || { cat message; fail "'$*'"; }
}

# ---- --what-if ----
price() { "$dnnc" simulate "$systems/mlp.dnn" --plan "$plans/data.plan" --cluster two.cluster "$@"; }
step() { price --json "$@" >out.json || fail "simulate $*"; field step_s out.json; }
before=$(step) faster=$(step --what-if link.node=2x) slower=$(step --what-if link.node=0.5x)
awk -v a="$faster" -v b="$before" -v c="$slower" 'BEGIN { exit !(a < b && b < c) }' ||
  fail "links: $faster $before $slower"
[ "$(step --what-if link.node=100MB/s)" = "$before" ] || fail "the same value"
[ "$(step --what-if link.node=2x --what-if link.node=0.5x)" = "$before" ] || fail "there and back"
[ "$(step --what-if latency.node=0s)" != "$before" ] || fail "latency"
sed -i 's/100MB/200MB/' two.cluster
[ "$(step)" = "$faster" ] || fail "a factor is not what the file would say"
sed -i 's/200MB/100MB/' two.cluster
[ "$(step --what-if flops=2x)" != "$before" ] || fail "flops"
[ "$(step --what-if flops.f32=200T)" != "$before" ] || fail "flops of a dtype"
[ "$(step --what-if bandwidth=2x)" != "$before" ] || fail "bandwidth"
step --what-if memory=1KB >/dev/null
[ "$(field fits out.json)" = false ] || fail "memory"
wrong "has no level 'rack'" price --what-if link.rack=2x
wrong "help: its levels are node" price --what-if link.rack=2x
wrong "names no level" price --what-if latency=2x
wrong "nothing is called 'speed'" price --what-if speed=2x
wrong "it changes one of link.LEVEL, latency.LEVEL, flops, flops.DTYPE, memory" price --what-if speed=2x
wrong "a device has a rate for each dtype" price --what-if flops=3T
wrong "no device of cluster 'two' has it" price --what-if host_link=2x
wrong "'2' is no value" price --what-if memory=2
wrong "as in 5us" price --what-if latency.node=5GB/s
wrong "'0x' is no value" price --what-if link.node=0x
wrong "'0.0000001x' is no value" price --what-if link.node=0.0000001x
wrong "is too large" price --what-if memory=9999999999x
wrong "leaves nothing" price --what-if cores=0.1x
wrong "takes NAME=VALUE, not 'memory'" price --what-if memory
wrong "takes NAME=VALUE, not '=2x'" price --what-if =2x

# ---- what a certificate names: files beside the plan ----
mkdir certified
cp "$systems/mlp.dnn" two.cluster certified
certify() { # MODEL
  { echo "certificate { model = \"$1\"; cluster = \"two.cluster\" }"; cat "$plans/data.plan"; } >certified/p.plan
}
certify mlp.dnn
"$dnnc" show "$plans/data.plan" --model "$systems/mlp.dnn" --cluster two.cluster --json >named.json || fail "show"
"$dnnc" show certified/p.plan --json >certified.json ||
  fail "show of a certified plan"
[ "$(field step_s named.json)" = "$(field step_s certified.json)" ] || fail "another step"
[ "$(field step_s named.json)" = "$before" ] || fail "no step"
"$dnnc" diff certified/p.plan "$plans/buckets.plan" >out.txt || fail "diff of a certified plan"
(cd certified && "$dnnc" show p.plan --what-if link.node=2x --json >../out.json) || fail "show here"
[ "$(field step_s out.json)" = "$faster" ] || fail "what if"
certify lost.dnn
"$dnnc" show certified/p.plan >out.txt 2>message || fail "show of a plan without its model"
grep -q "^certificate" out.txt || fail "its lines are not shown"
grep -q "names a model that is not there, 'certified/lost.dnn'" message || { cat message; fail "a lost model"; }
wrong "name it with --model" "$dnnc" diff certified/p.plan "$plans/buckets.plan"

# ---- --trace: the stream has no gap, and its events add up to the step ----
for pair in mlp:data mlp:zero3_microbatches gpt:sequence_zero3; do
  "$dnnc" simulate "$systems/${pair%:*}.dnn" --plan "$plans/${pair#*:}.plan" \
    --cluster two.cluster --trace step.json --json >out.json || fail "a trace of $pair"
  python3 - "$pair" <<'END' || fail "the trace of $pair"
import json, sys
events = json.load(open("step.json"), parse_float=lambda text: int(text.replace(".", "")))["traceEvents"]
step = round(json.load(open("out.json"))["step_s"] * 1e12)
slices = [e for e in events if e["ph"] == "X"]
tracks = {}
for e in slices:
    tracks.setdefault(e["tid"], []).append((e["ts"], e["dur"]))
at = 0
for begin, length in tracks[0]:
    assert begin == at and length > 0, (begin, at)
    at += length
assert at == step, (at, step)
for tid, spans in tracks.items():
    spans.sort()
    for (begin, length), after in zip(spans, spans[1:]):
        assert begin + length <= after[0], f"track {tid} overlaps"
names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
assert names[0] == "stream" and len(tracks) > 1 and set(tracks) <= set(names)
assert any(e["name"].startswith("wait: ") for e in slices)
END
done
wrong "cannot" price --trace nowhere/step.json
echo "inspect: timelines"

# ---- show: the same step by term, path, kind, name and line ----
show() { "$dnnc" show "$plans/$2.plan" --model "$systems/$1.dnn" --cluster two.cluster "${@:3}"; }
check_sums() { # of shown.json; MODEL PLAN
  python3 - <<'END' || fail "the sums of $1 under $2"
import json
shown = json.load(open("shown.json"))
step = shown["step_ps"]
assert sum(row["time_ps"] for row in shown["paths"]) == step
assert all(sum(row["parts_ps"].values()) == row["time_ps"] for row in shown["paths"])
for term, seconds in shown["terms"].items():
    of = sum(row["parts_ps"].get(term, 0) for row in shown["paths"])
    assert of == round(seconds * 1e12), term
assert sum(k["at_peak_bytes"] for k in shown["memory"]) + shown["hole_bytes"] == shown["peak_bytes"]
transient = [k for k in shown["memory"] if not k["persistent"]]
assert sum(k["at_peak_bytes"] for k in transient) == shown["live_bytes"]
stays = sum(k["at_peak_bytes"] for k in shown["memory"] if k["persistent"])
assert sum(row["persistent_bytes"] for row in shown["paths"]) == stays
assert sum(row["at_peak_bytes"] for row in shown["paths"]) == shown["live_bytes"]
moments = shown["memory_over_time"]
assert max(sum(v for k, v in m.items() if k != "time_ps") for m in moments) == shown["live_bytes"]
lane = shown["timelines"][0]["lanes"][0]["bars"]
assert lane[0]["begin_ps"] == 0 and lane[-1]["end_ps"] == step
assert all(a["end_ps"] == b["begin_ps"] for a, b in zip(lane, lane[1:]))
assert sum(line["exposed_ps"] for line in shown["lines"]) + shown["kernels_ps"] == step
assert sum(line["exposed_ps"] for line in shown["lines"]) == sum(
    round(1e12 * shown["terms"][t]) for t in
    ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute"))
assert sum(line["transfers"] for line in shown["lines"]) == shown["transfers"]
assert abs(shown["mfu"] - shown["flops"] / shown["peak_flops"] / shown["step_s"]) < 1e-9
END
}
# MFU counts 6 P + 12 L C T for a token (Chowdhery et al. 2022, appendix B), not the
# scores that the gradient of attention computes again.
printf 'mesh { data = 2 }\nplan { shard B over data }\n' >tokens.plan
printf 'device core { base = cpu; memory = 1GiB }\ncluster two {\n device = core\n level node { count = 2; link = 1GB/s }\n}\n' >tokens.cluster
"$dnnc" show tokens.plan --model "$root/models/gpt2.dnn" --cluster tokens.cluster --json \
  B=4 T=64 C=64 H=4 V=256 >tokens.json 2>message || { cat message; fail "tokens"; }
awk -v got="$(field flops tokens.json)" 'BEGIN { L = 12; C = 64; T = 64; V = 256
  exit got != 4 * T * (6 * (L * 12 * C * C + C * V) + 12 * L * C * T) }' ||
  fail "MFU of $(field flops tokens.json) FLOPs"
for pair in mlp:data gpt:sequence_zero3 moe:experts_tensor gpt:ring4; do
  show ${pair%:*} ${pair#*:} --json >shown.json || fail "show $pair"
  check_sums ${pair%:*} ${pair#*:}
done
show gpt sequence_zero3 >words || fail "words"
for words in '^by path ' 'block\[0..1\].attn.dot\[0\] ' '^memory by kind' '^sharding by name' \
  '  shard H, F, V over tensor .*, [+-]' 'zero = 3  .*, [+-]'; do
  grep -q -- "$words" words || { cat words; fail "no '$words'"; }
done
# A line buys the difference to the price of the plan without it.
show gpt tensor --json >shown.json || fail "show tensor"
sed '/shard H, F/d' "$plans/tensor.plan" >without.plan
"$dnnc" simulate "$systems/gpt.dnn" --plan without.plan --cluster two.cluster --json >out.json || fail "without a line"
python3 - <<'END' || fail "what a line buys"
import json
line = json.load(open("shown.json"))["lines"][0]
out = json.load(open("out.json"))
assert line["text"] == "shard H, F over tensor" and line["line"] == 8, line
assert line["step_without_ps"] == round(out["step_s"] * 1e12)
assert line["peak_without_bytes"] == out["ranks"][0]["peak_bytes"]
END
# A line without which there is no plan says why.
show gpt ring4 >words 2>message || fail "show ring4"
grep -q "shard T over seq .*  no plan: 'attention = ring' cannot hold" words && ! grep -q error message ||
  { cat words message; fail "a line that another one needs"; }
# A plan has one table, however it is spelt: axes of ZeRO written out or not, lines in any order, ranges folded or not.
cat >folded.plan <<'END'
mesh { data = 2; tensor = 2 }
plan {
  zero = 3
  shard B over data
  shard H, F, V over tensor
  shard x[0]: B over data, T over tensor
  shard block[0..1].attn.wo: H over tensor
}
END
cat >written.plan <<'END'
mesh { data = 2; tensor = 2 }
plan {
  shard block[1].attn.wo: H over tensor
  shard x[0]: B over data, T over tensor
  shard H, F, V over tensor; shard block[0].attn.wo: H over tensor
  shard B over data
  zero = 3 over data
}
END
for plan in folded written; do
  "$dnnc" show $plan.plan --model "$systems/gpt.dnn" --cluster two.cluster --json --collectives >$plan.json ||
    fail "show $plan"
done
python3 - <<'END' || fail "the tables of two spellings"
import json
def tables(name):
    shown = json.load(open(name))
    for row in shown["lines"] + shown["collectives"]:
        for key in ("line", "plan_line", "plan_file"):
            row.pop(key, None)
    text = json.dumps([shown["lines"], shown["collectives"]]).replace("zero = 3 over data", "zero = 3")
    return text.replace("block[0..1].attn.wo", "block[*].attn.wo"), shown
folded, shown = tables("folded.json")
written, _ = tables("written.json")
for i in (0, 1):
    written = written.replace(f"shard block[{i}].attn.wo", "shard block[*].attn.wo")
assert folded == written
causes = {}
for row in shown["collectives"]:
    causes.setdefault(row["axes"], set()).add(row["pin"].split(":")[0])
assert "zero = 3" not in causes["tensor"] and "zero = 3" in causes["data"], causes
of = {line["text"]: line for line in shown["lines"]}
assert of["shard H, F, V over tensor"]["exposed_ps"] > of["zero = 3"]["exposed_ps"] > 0, of
assert of["shard block[0..1].attn.wo: H over tensor"]["transfers"] > 0, of
END
show mlp data --what-if link.node=2x --without launch --collectives >words || fail "options of show"
grep -q '^operator  *axes' words && ! grep -q '  launch ' words || fail "options of show"
wrong "what a step costs depends on the machines" "$dnnc" show "$plans/data.plan" \
  --model "$systems/mlp.dnn" --what-if flops=2x
wrong "what a step costs follows from a model" "$dnnc" show "$plans/data.plan" --cluster two.cluster
echo "inspect: terms, paths, kinds, names and lines"

# ---- diff: each table adds up to the difference, in both orders ----
diff_of() { "$dnnc" diff "$plans/$2.plan" "$plans/$3.plan" --model "$systems/$1.dnn" --cluster two.cluster "${@:4}"; }
for pair in gpt:tensor:data gpt:sequence_zero3:tensor mlp:zero3_microbatches:data gpt:ulysses:ring4; do
  IFS=: read -r model a b <<<"$pair"
  diff_of $model $a $b --json >there.json 2>message && diff_of $model $b $a --json >back.json 2>message ||
    { cat message; fail "diff $pair"; }
  python3 - <<'END' || fail "the sums of diff $pair"
import json
there, back = (json.load(open(f)) for f in ("there.json", "back.json"))
assert there["diff_ps"] == there["b"]["step_ps"] - there["a"]["step_ps"] == -back["diff_ps"] != 0
assert there["diff_bytes"] == there["b"]["peak_bytes"] - there["a"]["peak_bytes"]
for out in (there, back):
    for table, unit, of in (("terms", "ps", "step_ps"), ("paths", "ps", "step_ps"), ("memory", "bytes", "peak_bytes")):
        for side in "ab":
            assert sum(row[f"{side}_{unit}"] for row in out[table]) == out[side][of], (table, side)
        assert sum(row[f"diff_{unit}"] for row in out[table]) == out[f"diff_{unit}"], table
names = lambda out: {row["path"]: row["diff_ps"] for row in out["paths"]}
assert names(there) == {path: -diff for path, diff in names(back).items()}
END
done
diff_of gpt tensor data >words || fail "words of diff"
for words in '^a: .*tensor.plan: 4 ranks' '^by term ' '^memory at the peak ' '^by path ' '  block\[0..1\].attn.dot\[0\] ' \
  '  others ' '  arena '; do
  grep -q -- "$words" words || { cat words; fail "no '$words'"; }
done
# Other links change one plan more than the other.
total() { diff_of gpt tensor data --json "$@" | grep -o '"diff_ps":[-0-9]*' | head -n 1; }
now=$(total) faster=$(total --what-if link.node=10x --without launch)
[ -n "$faster" ] && [ "$now" != "$faster" ] || fail "--what-if of diff: $now, $faster"
wrong "needs two plans" "$dnnc" diff "$plans/data.plan" --model "$systems/gpt.dnn" --cluster two.cluster
wrong "follows from a model" "$dnnc" diff a.plan b.plan --cluster two.cluster
wrong "name them with --cluster" "$dnnc" diff a.plan b.plan --model "$systems/gpt.dnn"
wrong "cannot open 'missing.plan'" "$dnnc" diff "$plans/data.plan" missing.plan --model "$systems/gpt.dnn" \
  --cluster two.cluster
# Memory is that of the class that needs most; each class has a line.
"$dnnc" diff "$plans/pipe_gpt.plan" "$plans/pipe_gpt_gpipe.plan" --model "$systems/gpt.dnn" --cluster two.cluster --json \
  >diff.json || fail "diff of stages"
python3 - <<'END' || { cat diff.json; fail "the difference of two plans of stages"; }
import json
diff = json.load(open("diff.json"))
for side in "ab":
    of = diff[side]
    assert [c["stages"] for c in of["classes"]] == [[0], [1]], of
    assert max(c["peak_bytes"] for c in of["classes"]) == of["peak_bytes"]
    assert sum(row[side + "_bytes"] for row in diff["memory"]) == of["peak_bytes"], of
    assert sum(row[side + "_ps"] for row in diff["paths"]) == of["step_ps"]
END
"$dnnc" diff "$plans/pipe_gpt.plan" "$plans/data.plan" --model "$systems/gpt.dnn" --cluster two.cluster >out ||
  fail "diff of stages and none"
grep -q '^   stage 1 on rank 1: compute .* bubble .* memory ' out || { cat out; fail "no line of a stage"; }
grep -q '^by stage, on the critical path ' out && grep -q '^  stage 1  *0\.[0-9]* ms  *0\.000 ms  *-0' out && grep -q '^  no stages  *0\.000 ms  *[0-9]*\.[0-9]* ms  *+' out ||
  { cat out; fail "no table by stage"; }
# By term, by phase and by stage the differences add up to that of the step, to the picosecond: of two plans with stages,
# of one with and one without, of several stages on a rank, of other numbers of ranks.
for pair in pipe_gpt:pipe_gpt_gpipe pipe_gpt:data tensor:pipe_gpt_interleaved_data pipe_gpt_zbh2:pipe_gpt_four \
  pipe_gpt_zbv:pipe_gpt_list pipe_gpt_naive:place_gpt pipe_gpt_zbh1_zero2:pipe_gpt_bfs_zero3; do
  diff_of gpt ${pair%:*} ${pair#*:} L=4 B=16 --json >there.json 2>message &&
    diff_of gpt ${pair#*:} ${pair%:*} L=4 B=16 --json >back.json 2>message || { cat message; fail "diff $pair"; }
  python3 - <<'END' || { cut -c1-3000 there.json; fail "the sums of diff $pair"; }
import json
there, back = (json.load(open(f)) for f in ("there.json", "back.json"))
assert there["diff_ps"] == there["b"]["step_ps"] - there["a"]["step_ps"] == -back["diff_ps"] != 0
for out in (there, back):
    for table in "terms", "phases", "stages", "paths":
        for key, of in (("a_ps", out["a"]["step_ps"]), ("b_ps", out["b"]["step_ps"]), ("diff_ps", out["diff_ps"])):
            assert sum(row[key] for row in out[table]) == of, (table, key)
    for row in out["stages"]:
        for key in "a_ps", "b_ps", "diff_ps":
            assert sum(phase[key] for phase in row["phases"]) == row[key], row
    for side in "ab":
        numbers = {s for c in out[side].get("classes", [{"stages": [None]}]) for s in c["stages"]}
        assert {row["stage"] for row in out["stages"] if row[f"{side}_ps"] > 0} <= numbers, (side, numbers)
swapped = [(row["stage"], row["b_ps"], row["a_ps"]) for row in back["stages"]]
assert [(row["stage"], row["a_ps"], row["b_ps"]) for row in there["stages"]] == swapped
END
done
# Under 'naive' with one micro-batch nothing overlaps: the critical path has all passes of all stages.
diff_of gpt pipe_gpt_naive pipe_gpt L=4 --json >diff.json || fail "diff of naive"
python3 - <<'END' || { cut -c1-4000 diff.json; fail "the critical path of a naive schedule"; }
import json
diff = json.load(open("diff.json"))
slowest = {row["phase"]: row["a_ps"] for row in diff["phases"]}
rows = [{phase["phase"]: phase["a_ps"] for phase in row["phases"]} for row in diff["stages"]]
assert len(rows) == 3 and all(min(row[k] for k in ("forward", "dgrad", "wgrad", "messages")) > 0 for row in rows), rows
same = [row for row in rows if all(row[k] == slowest[k] for k in ("forward", "dgrad", "wgrad"))]
assert len(same) == 1, (rows, slowest)
assert sum(row["messages"] for row in rows) < slowest["messages"]
END
echo "inspect: differences"

# ---- unlike devices: a timeline for each group, of which the slowest takes the step ----
cat >both.cluster <<'END'
cluster both {
  group fast { device = a100_80g; level node { count = 2; link = 300GB/s; latency = 1us } }
  group slow { device = v100_16g; level node { count = 2; link = 150GB/s; latency = 5us } }
  level room { link = 1GB/s; latency = 20us }
}
END
printf 'mesh { data = 4 }\nplan {\n  shard B over data\n}\n' >four.plan
"$dnnc" show four.plan --model "$systems/mlp.dnn" --cluster both.cluster --json --html page.html \
  --trace step.json >shown.json 2>message || { cat message; fail "two groups"; }
python3 "$root/tests/e2e/page_numbers.py" page.html shown.json >numbers || fail "the page of two groups"
python3 - <<'END' || fail "timelines of two groups"
import json
shown = json.load(open("shown.json"))
events = json.load(open("step.json"), parse_float=lambda text: int(text.replace(".", "")))["traceEvents"]
step = shown["step_ps"]
assert sum(row["time_ps"] for row in shown["paths"]) == step
classes = [t for t in shown["timelines"] if t["title"].startswith("A step of the 2 ranks of ")]
assert [t["title"].split()[-2] for t in classes] == ["fast", "slow"], classes
begins, lengths = [], []
for pid, timeline in enumerate(classes):
    bars = timeline["lanes"][0]["bars"]
    assert all(a["end_ps"] == b["begin_ps"] for a, b in zip(bars, bars[1:])), pid
    begins.append(bars[0]["begin_ps"])
    lengths.append(bars[-1]["end_ps"] - bars[0]["begin_ps"])
    spans = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, 0)]
    assert (spans[0][0], spans[-1][1]) == (bars[0]["begin_ps"], bars[-1]["end_ps"])
    assert all(a[1] == b[0] for a, b in zip(spans, spans[1:])), pid
assert min(begins) == 0 and max(lengths) == step, (begins, lengths, step)
waits = [sum(e["dur"] for e in events if e["pid"] == pid and e.get("name", "").startswith("wait: ")) for pid in (0, 1)]
assert waits[0] > waits[1], waits
assert shown["memory_bytes"] < 17e9
assert shown["device"] == "a100_80g, v100_16g"
END
echo "inspect: two groups"

# ---- show --html and --dot ----
page() { # MODEL PLAN OPTION...
  show "$1" "$2" --html page.html --dot step.dot --json "${@:3}" >shown.json 2>message ||
    { cat message; fail "a page of $1 under $2"; }
  python3 "$root/tests/e2e/page_numbers.py" page.html shown.json >numbers || fail "the page of $1 under $2"
}
page mlp zero3_microbatches
page gpt sequence_zero3
page gpt pipe_gpt_tensor
page gpt pipe_gpt_loops
page gpt pipe_gpt_tensor --stage 0
python3 - <<'END' || fail "the first stage of two"
import json
def first_step(shown):
    return sum(path["time_ps"] for path in shown["paths"])
shown = json.load(open("shown.json"))
first, last = shown["ranks"]
assert shown["shown_stage"] == 0 and first["stages"] == [0] and last["stages"] == [1]
assert all(sum(r["arena"].values()) == r["peak_bytes"] for r in (first, last)), shown["ranks"]
paths = {path["path"] for path in shown["paths"]}
assert "block[0].mlp.dot[0]" in paths and "block[1].mlp.dot[0]" not in paths, paths
kinds = sum(kind["at_peak_bytes"] for kind in shown["memory"]) + shown["hole_bytes"]
assert kinds == first["peak_bytes"], (kinds, first)
stages = shown["stages"]
cut = [line for line in shown["lines"] if line["text"] == "cut after block[0]"][0]
waits = round(shown["ranks"][0]["bubble"] * first_step(shown))
assert cut["transfers"] == 6 and cut["sent_bytes"] > 0 and abs(cut["exposed_ps"] - waits) < 2, (cut, waits)
assert [s["blocks"] for s in stages] == [["wte", "wpe", "block[0]"], ["block[1]", "norm"]], stages
assert [s["first_rank"] for s in stages] == [0, 2] and all(s["ranks"] == 2 for s in stages), stages
END
grep -q 'block\[0\]' step.dot && ! grep -q 'block\[1\].mlp' step.dot || fail "the graph of another stage"
wrong "has no stage 2: its stages are 0 to 1" show gpt pipe_gpt_tensor --stage 2
wrong "takes a plan with several stages" show gpt tensor --stage 0
page moe experts_tensor --what-if link.node=0.1x --lines 1
page gpt sequence_zero3 L=6 --lines 0
grep -q 'block\[2\], one of 6: backward pass' page.html || fail "one block of a repeat"
# Calls of a layer at several places are no repeat, however costly.
cat >calls.dnn <<'END'
dim B = 16, P = 512, Q = P, K = 8
layer linear(x: [B, P]) {
  param w: [P, Q] = he_uniform(P)
  y = dot(x, w, P)
  return y[Q -> P]
}
layer block(x: [B, P]) {
  param g: [P] = ones
  return x + relu(x * g)
}
net calls(x: [B, P]) -> [B, K] {
  param w: [P, K] = he_uniform(P)
  x = relu(linear(x))
  repeat i in 4 { x = block(x) }
  x = relu(linear(x))
  repeat i in 3 { x = x * i }
  x = relu(linear(x))
  return dot(x, w, P)
}
data d { x: [B, P] = synthetic(); y: i32[B] = synthetic(K) }
train { loss = cross_entropy(calls(d.x), d.y, K); optimizer = sgd(lr = 0.01); steps = 1 }
END
printf 'mesh { data = 4 }\nplan { shard B over data }\n' >four.plan
"$dnnc" show four.plan --model calls.dnn --cluster two.cluster --html calls.html --lines 0 >words || fail "calls"
grep -q 'block\[[0-9]\], one of 4' calls.html && ! grep -q 'linear\[[0-9]\], one of' calls.html || fail "a repeat of calls"
# Every box of the graph is drawn once, edges join boxes, and times add up.
python3 - <<'END' || fail "the graph"
import json, re
shown, text = json.load(open("shown.json")), open("step.dot").read()
boxes = re.findall(r'^  ("[^"]*") \[label="((?:[^"\\]|\\.)*)"', text, re.M)
names = [box for box, _ in boxes]
assert len(names) == len(set(names)) > 20
edges = re.findall(r'^  ("[^"]*") -> ("[^"]*") \[tooltip=', text, re.M)
assert edges and len(edges) == len(set(edges)) and all(a in names and b in names for a, b in edges)
time = sum(float(re.search(r"([\d.]+) ms$", label).group(1)) for _, label in boxes)
assert abs(time - shown["step_ps"] * 1e-9) < 0.001 * len(boxes), (time, shown["step_ps"])
assert any("block[3..5] backward" in label for _, label in boxes)
END
! command -v dot >/dev/null || dot -Tsvg step.dot >step.svg || fail "Graphviz cannot read the graph"
wrong "cannot" show mlp data --html nowhere/page.html
wrong "cannot" show mlp data --dot nowhere/step.dot
wrong "depends on the machines" "$dnnc" show "$plans/data.plan" --model "$systems/mlp.dnn" --html page.html
# A large program does not make a large page.
cp "$plans/gpt3.plan" zero.plan
sed -i 's/^plan {/&\n  zero = 3/' zero.plan
"$dnnc" show zero.plan --model "$root/models/gpt3.dnn" --cluster "$root/models/a100x1024.cluster" --lines 0 \
  --html page.html --json >shown.json || fail "a page of GPT-3"
python3 "$root/tests/e2e/page_numbers.py" page.html shown.json >numbers || fail "the page of GPT-3"
[ "$(wc -c <page.html)" -lt 2000000 ] || fail "a page of $(wc -c <page.html) bytes"
cat >eight.plan <<'END'
mesh { pipe = 8; data = 16; tensor = 8 }
plan {
  schedule = 1f1b
  microbatches = 96
  zero = 1
  shard H, F, V over tensor
  remat block
  cut after block[11]; cut after block[23]; cut after block[35]; cut after block[47]
  cut after block[59]; cut after block[71]; cut after block[83]
}
END
"$dnnc" show eight.plan --model "$root/models/gpt3.dnn" --cluster "$root/models/a100x1024.cluster" --lines 0 \
  --html page.html --json >shown.json || fail "a page of GPT-3 in stages"
python3 "$root/tests/e2e/page_numbers.py" page.html shown.json >numbers || fail "the page of GPT-3 in stages"
[ "$(wc -c <page.html)" -lt 2000000 ] || fail "a page of $(wc -c <page.html) bytes"
python3 - <<'END' || fail "the calls of GPT-3 in stages"
import json
shown = json.load(open("shown.json"))
assert [sum(bar["calls"] for bar in row if bar["call"] != "wait") >= 2 * 96 for row in shown["calls"]] == [True] * 8
assert {bar["call"] for bar in shown["calls"][0]} >= {"F", "B", "wait"}
END
# 1,024 ranks in 100 lines: equal stages and messages are one row.
"$dnnc" show eight.plan --model "$root/models/gpt3.dnn" >words || fail "show GPT-3 in stages"
[ "$(wc -l <words)" -le 100 ] && grep -q '^  1..6   128..895 .* block\[12..23\] to block\[72..83\]$' words &&
  grep -q "^  7..1 -> 6..0 .* each micro-batch " words && grep -q "^  others  *up to 8  once a step  *21 messages" words ||
  { cat words; fail "the lines of a plan for 1,024 ranks"; }
# So it is with times: classes whose ranks compute as long are one row, and so are the last rows of a table.
"$dnnc" show eight.plan --model "$root/models/gpt3.dnn" --cluster "$root/models/a100x1024.cluster" --lines 2 >words || fail "times"
[ "$(wc -l <words)" -le 100 ] && grep -q '^ranks 128..895, stages 1..6 (a100_80g): compute [0-9.]* ms, wait [0-9.]* ms to ' words &&
  grep -q '^  block\[0..11\].attn.wq, wk, wv  *36 ' words && grep -q '^  others  *[0-9]* .* ms ' words &&
  grep -q '^  [0-9]* other lines  *0 ' words || { cat words; fail "the lines of a priced plan for 1,024 ranks"; }
echo "inspect: pages ($(cat numbers), $(wc -c <page.html) bytes for GPT-3 on 1,024 ranks) and graphs"

#!/bin/bash
# `dnnc simulate` says how long a schedule takes, in words and as JSON, and what
# is wrong with one that cannot be run.
. "$(dirname "$0")/lib.sh"

printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' >list.csv
"$dnnc" simulate list.csv >words || fail "a list"
grep -q '^2 ranks, 2 stages, 2 micro-batches: 9.0$' words ||
  { cat words; fail "words"; }
"$dnnc" simulate list.csv --times 1,0.25,0.5 --json >out.json || fail "JSON"
[ "$(field makespan out.json)" = 5.25 ] || { cat out.json; fail "times"; }

printf '3F0,0F0\n1F0,2F0\n' >stuck.csv
"$dnnc" simulate stuck.csv 2>message && fail "a deadlock"
grep -q "^stuck.csv:1:1: error: rank 0 waits for ever before '3F0'" message &&
  grep -q "^stuck.csv:2:5: note: it needs this, which rank 1 runs" message ||
  { cat message; fail "what a deadlock says"; }
for times in 1,1 1,1,1,1 1,x,1 1,-1,1 ''; do
  "$dnnc" simulate list.csv --times "$times" 2>message && fail "times '$times'"
  grep -q "takes three numbers" message || { cat message; fail "'$times'"; }
done
"$dnnc" simulate missing.csv 2>message && fail "no file"
grep -q "cannot open 'missing.csv'" message || { cat message; fail "no file"; }

# No step is too long for its number.
"$dnnc" simulate "$root/models/gpt3.dnn" --cluster "$root/models/laptop.cluster" >words ||
  fail "GPT-3 on a laptop"
grep -q ': a step takes [0-9.]* ms or more (estimate' words && ! grep -Eq ' -[0-9]' words ||
  { cat words; fail "a step that is too long"; }

# A model on a cluster: the parts add up to the step, on slow links ranks wait.
simulate() { # LINK OPTION...
  printf 'cluster two {\n device = one_core\n level node { count = 2; link = %s; latency = 50us }\n}\n' "$1" >two.cluster
  printf 'device one_core { base = cpu; memory = 1GiB }\n' >>two.cluster
  shift
  "$dnnc" simulate "$root/models/mlp.dnn" --cluster two.cluster --ranks 2 "$@"
}
value() { field "$1" out.json; }
simulate 1GB/s >words || fail "a model"
grep -q '^mlp on 2 ranks of two (one_core): a step takes [0-9.]* ms (estimate; no published run of one_core)$' words &&
  grep -q '^[0-9.]* [kM]*samples a second, MFU [0-9.]* %$' words && grep -q '^MFU: FLOPs of' words &&
  grep -q '^memory: .*: fits$' words || { cat words; fail "words of a model"; }
simulate 1MB/s --json >out.json || fail "JSON of a model"
python3 - <<'END' || { cat out.json; fail "parts"; }
import json
out = json.load(open("out.json"))
rank = out["ranks"][0]
assert abs(sum(out["terms"].values()) - out["step_s"]) < 1e-9
assert out["terms"]["all_reduce"] > 0.5 * out["step_s"], "exposed"
assert 0 < rank["compute_s"] < out["step_s"] and rank["exposed_comm_s"] > 0
assert out["bytes_sent"] > 0 and out["fits"] is True
END
slow=$(value step_s)
simulate 1MB/s --without all_reduce --without interference --json >out.json ||
  fail "without a term"
[ "$(value all_reduce)" = 0.0 ] || { cat out.json; fail "a term is left out"; }
awk -v a="$(value step_s)" -v b="$slow" 'BEGIN { exit !(a < b / 2) }' ||
  fail "without all_reduce $(value step_s), with it $slow"
[ "$("$dnnc" list terms | grep -c ' part  ')" = 15 ] || fail "list terms"
# On a GPU a 16-bit product whose rows are no multiple of 16 bytes is slow: that of 50,257 words is, that of 50,304 is not.
words() { # V OPTION...
  "$dnnc" simulate "$root/models/gpt2.dnn" "V=$1" B=8 --cluster "$root/models/h100x256.cluster" \
    --ranks 1 --json "${@:2}" >out.json || fail "$1 words"
  value step_s
}
awk -v odd="$(words 50257)" -v even="$(words 50304)" -v without="$(words 50257 --without alignment)" \
  'BEGIN { exit !(odd > even + 0.01 && without < even * 1.01) }' || fail "unaligned rows"
# A collective that was measured beside matmuls is slower there, so that
# ranks wait for what it could not send, and matmuls are slower, too.
beside() { # BESIDE_PS TAKEN
  printf 'op,ranks,nodes,bytes,ps,beside_ps,taken\n' >links.csv
  printf 'all_reduce,2,1,%d,%d,%d,%d\n' 1024 1000000 0 0 100000 40000000 "$1" "$2" >>links.csv
  simulate 1GB/s >/dev/null || fail "two.cluster"
  printf 'measured {\n links = "links.csv"\n}\n' >>two.cluster
  printf 'mesh {\n data = 2\n}\nplan {\n bucket = 100KB\n}\n' >buckets.plan
  "$dnnc" simulate "$root/models/mlp.dnn" --cluster two.cluster --plan buckets.plan \
    --json >out.json || fail "a measured collective"
}
beside 40000000 0 && alone=$(value step_s)
[ "$(value interference)" = 0.0 ] || fail "interference where nothing is taken"
beside 40000000 400 && [ "$(value interference)" != 0.0 ] || fail "nothing is taken"
beside 400000000 0
awk -v a="$alone" -v b="$(value step_s)" 'BEGIN { exit !(b > a * 1.01) }' ||
  fail "as fast beside matmuls: $alone, $(value step_s)"
# A message right after another one takes less time: the iterations of a scan
# send one after the other.  A table without that time prices all from rest.
printf 'mesh { t = 2 }\nplan { shard C over t }\n' >gates.plan
scan_step() { # OPTION...
  "$dnnc" simulate "$root/models/charlstm.dnn" --cluster two.cluster \
    --plan gates.plan --json "$@" >out.json || fail "messages of a scan"
  value step_s
}
rows() { # COLUMNS END
  printf 'op,ranks,nodes,bytes,ps,beside_ps,taken%s\n' "$1" >links.csv
  for op in all_gather all_reduce reduce_scatter; do
    printf '%s,2,1,%d,%d,0,0%s\n' $op 1024 50000000 "$2" $op 100000 90000000 "$2"
  done >>links.csv
}
rows "" "" && rest=$(scan_step)
rows ,following_ps ,20000000 && after=$(scan_step)
[ "$(scan_step --without gap)" = "$rest" ] || fail "gaps count without them"
awk -v rest="$rest" -v after="$after" 'BEGIN { exit !(after < rest - 128 * 20e-6) }' ||
  fail "messages in a row take as long as from rest: $after, $rest"
# Without the pass that joins them, scores are products and kernels of their own.
attention() {
  "$dnnc" simulate "$root/models/chargpt.dnn" --cluster two.cluster --ranks 2 \
    --json "$@" >out.json || fail "chargpt $*"
  value attention
}
[ "$(attention)" != 0.0 ] || fail "attention"
[ "$(attention --disable attention)" = 0.0 ] || fail "stored scores"

wrong() { # MESSAGE COMMAND...
  local message=$1
  shift
  "$@" >out 2>message && fail "'$*' ends well"
  grep -q -- "$message" message || { cat message; fail "'$*'"; }
}
wrong "no term 'al_reduce'" simulate 1GB/s --without al_reduce
wrong "help: did you mean 'all_reduce'" simulate 1GB/s --without al_reduce
wrong "name them with --cluster" "$dnnc" simulate "$root/models/mlp.dnn"
wrong "more than cluster 'two' has" "$dnnc" simulate "$root/models/mlp.dnn" \
  --cluster two.cluster --ranks 3

# How fast and how well used.
python3 - <<'END' || { cat out.json; fail "rates"; }
import json
out = json.load(open("out.json"))
assert abs(out["samples_per_s"] * out["step_s"] - out["samples"]) < 1e-6 * out["samples"]
assert abs(out["mfu"] - out["flops"] / out["peak_flops"] / out["step_s"]) < 1e-9 and out["mfu_formula"]
END
# One rank of a machine of two CPUs computes with both, and is measured by both.
peak() { # RANKS
  "$dnnc" simulate "$root/models/mlp.dnn" --cluster "$root/models/laptop.cluster" --ranks "$1" --json >out.json &&
    value peak_flops
}
[ "$(peak 1)" = "$(peak 2)" ] || { cat out.json; fail "the peak of one rank"; }
# An arena may not have the bytes of the driver.
reserved() { # BYTES
  sed -i "s/memory = 1GiB[^}]*}/memory = 1GiB; reserve = $1 }/" two.cluster
  "$dnnc" simulate "$root/models/mlp.dnn" --cluster two.cluster --json >out.json || fail "reserve = $1"
}
simulate 1GB/s >/dev/null || fail "two.cluster"
reserved 100MB
[ "$(value fits)" = true ] && [ "$(value memory_bytes)" = 973741824 ] || { cat out.json; fail "a reserve"; }
reserved 1GiB
[ "$(value fits)" = false ] && [ "$(value memory_bytes)" = 0 ] || { cat out.json; fail "all is reserved"; }
"$dnnc" simulate "$root/models/mlp.dnn" --cluster "$root/models/h100x256.cluster" --ranks 1 >words || fail "an H100"
grep -q '(estimate; mean error [0-9.]* %, largest [0-9.]* %, on [0-9]* published runs)$' words &&
  grep -q '^memory: .*, without 1.68 GB of driver and communication library: fits$' words || { cat words; fail "an H100"; }

# A plan that does not fit is priced too, by the memory of the device or a pin of the plan.
printf 'mesh { data = 2 }\nplan { memory = 1MB }\n' >pin.plan
for link in "1GB/s" "1GB/s --plan pin.plan"; do
  simulate $link H1=20000 H2=20000 --json >out.json 2>message || { cat message; fail "$link"; }
  grep -q '"fits":false' out.json && [ "$(value missing_bytes)" -gt 1000000000 ] ||
    { cat out.json; fail "what does not fit on $link"; }
done
simulate 1GB/s --plan pin.plan >words || fail "a pin"
grep -q '^memory: .* of 1.00 MB, which the plan allows: does not fit, .* are missing$' words ||
  { cat words; fail "words of a pin"; }
# A warning says how much is lost, and there is none where that rounds to nothing.
printf 'mesh { data = 2 }\nplan {\n shard H1 over data\n}\n' >uneven.plan
padding() { simulate 1GB/s --plan uneven.plan "H1=$1" 2>&1 | grep -c "is padding"; }
[ "$(padding 25)" = 1 ] && [ "$(padding 1001)" = 0 ] || fail "a warning about padding"
printf 'mesh { data = 8 }\nplan { shard B over data }\n' >eight.plan
"$dnnc" simulate "$root/models/mlp.dnn" --cluster two.cluster --plan eight.plan 2>message && fail "a plan for more ranks"
grep -q "the plan asks for 8 ranks, more than cluster 'two' has, which are 2" message || { cat message; fail "more ranks"; }
"$dnnc" build "$root/models/mlp.dnn" --plan pin.plan -o pin.bundle 2>message && fail "a build over the pin"

# Without a plan and --ranks: data parallelism over all ranks of the cluster.
"$dnnc" simulate "$root/models/mlp.dnn" --cluster two.cluster --json >out.json || fail "no plan"
[ "$(value ranks)" = 2 ] && awk -v s="$(value all_reduce)" 'BEGIN { exit !(s > 0) }' ||
  { cat out.json; fail "without a plan"; }

# Unlike devices: a class for each group of the cluster, which wait for each other.
"$dnnc" simulate "$root/models/mlp.dnn" --cluster "$root/models/mixed.cluster" \
  --ranks 32 --json >out.json 2>message || { cat message; fail "two groups"; }
python3 - <<'END' || { cat out.json; fail "classes"; }
import json
out = json.load(open("out.json"))
new, old = out["ranks"]
assert (new["device"], new["ranks"]) == ("a100_80g", 16)
assert (old["device"], old["ranks"]) == ("v100_16g", 16)
assert new["memory_bytes"] > old["memory_bytes"] > 0
assert new["exposed_comm_s"] > 0 and old["exposed_comm_s"] > 0
assert abs(sum(out["terms"].values()) - out["step_s"]) < 1e-9
END
"$dnnc" simulate "$root/models/mlp.dnn" --cluster "$root/models/mixed.cluster" \
  --ranks 32 >words 2>message || fail "two groups in words"
grep -q '^16 ranks of old (v100_16g): compute .*: fits$' words || { cat words; fail "words of a class"; }

# Messages in pieces: the one rank behind three replicas sends each its rows, the loss and the norm.
"$dnnc" simulate "$root/benchmarks/systems/mlp.dnn" B=12 --plan "$root/benchmarks/plans/pipe_mlp_replicas.plan" \
  --cluster "$root/models/pipedream-a.cluster" --json >out.json 2>message || { cat message; fail "replicas"; }
python3 - <<'END' || { cat out.json; fail "bytes of pieces"; }
import json
out = json.load(open("out.json"))
replica, last = out["ranks"]
rows = next(e["bytes"] for e in out["edges"] if e["from"] == 1 and e["period"] == "microbatch")
assert last["bytes_sent"] == rows + 3 * (4 + 8)
assert rows / 3 < replica["bytes_sent"]
END

cat >both.cluster <<'END'
device one_core { base = cpu; memory = 1GiB }
cluster both {
  group fast { device = a100_80g; level node { count = 2; link = 300GB/s; latency = 1us } }
  group slow { device = one_core; level node { count = 2; link = 1GB/s; latency = 5us } }
  level room { link = 1GB/s; latency = 20us }
}
END
wrong "not supported yet: a program on devices of several back ends, as 'a100_80g' (cuda) and 'one_core' (cpu) of" \
  "$dnnc" simulate "$root/models/mlp.dnn" --cluster both.cluster
"$dnnc" simulate "$root/models/mlp.dnn" --cluster both.cluster --ranks 2 >words || fail "one back end"

# Several plans: a row each, with the figures of each alone; the mistakes of all of them.
gpt=$root/benchmarks/systems/gpt.dnn plans=$root/benchmarks/plans cluster=$root/models/h100x256.cluster
three="--plan $plans/data.plan --plan $plans/tensor.plan --plan $plans/sequence.plan"
"$dnnc" simulate "$gpt" --cluster "$cluster" $three >words || fail "three plans"
[ "$(grep -c ' fits$' words)" = 3 ] && head -n 1 words | grep -q '^plan .* memory$' ||
  { cat words; fail "rows of plans"; }
"$dnnc" simulate "$gpt" --cluster "$cluster" $three --json >rows.json || fail "three plans as JSON"
for plan in data tensor sequence; do
  "$dnnc" simulate "$gpt" --cluster "$cluster" --plan "$plans/$plan.plan" --json >one.json || fail "$plan"
  sed -n "s|^{\"plan\":\"$plans/$plan.plan\",|{|p" rows.json | cmp - one.json || fail "$plan beside others"
done
sed 's/tensor/other/' "$plans/tensor.plan" | sed 's/^plan.*{/plan other_net {/' >other.plan
"$dnnc" simulate "$gpt" --cluster "$cluster" $three --plan other.plan --plan missing.plan >words 2>message &&
  fail "plans with mistakes"
[ ! -s words ] && grep -q "^other.plan:.*error: " message && grep -q "cannot open 'missing.plan'" message ||
  { cat words message; fail "mistakes of several plans"; }
"$dnnc" simulate "$gpt" --cluster "$cluster" $three --trace t.json 2>message && fail "a trace of three plans"
grep -q "^dnnc: error: --trace takes one --plan$" message || { cat message; fail "a trace of three plans"; }

# ---- ranks without a piece of a message, on devices of their own ----
cat >few.dnn <<'EOF'
dim B = 4, C = 6, H = 3, F = 16384
layer block(x: [B, C]) {
  param w1: [C, H] = normal(0.1)
  param w2: [H, C] = normal(0.1)
  return x + dot(gelu(dot(x, w1, C)), w2, H)
}
layer lin(x: [B, C]) {
  param w: [C, F] = normal(0.1)
  return tanh(dot(x, w, C))
}
net m(x: [B, C]) -> [B, F] {
  repeat i in 2 { x = block(x) }
  return lin(x)
}
data d { x: [B, C] = synthetic(); y: [B, F] = synthetic() }
train { loss = mse(m(d.x), d.y); optimizer = sgd(lr = 0.1); steps = 2 }
EOF
cat >few.cluster <<'EOF'
cluster made {
  group a { device = v100_16g; level node { count = 4; link = 10Gb/s; latency = 30us } }
  group b { device = a100_80g; level node { count = 1; link = 1Gb/s; latency = 5us } }
  level room { link = 100MB/s; latency = 30us }
}
EOF
cat >few.plan <<'EOF'
plan {
  schedule = vhalf
  stage 0: block[0].dot[0] on 0
  stage 1: block[0].dot[1] on 1
  stage 2: block[0].add on 2..4 as (a = 3)  # rank 4 has none of 4 samples
  stage 3: block[1] on 2..4 as (a = 3)
  stage 4: lin.dot on 1
  stage 5: lin.tanh, loss on 0
  shard B over a
}
EOF
"$dnnc" simulate few.dnn --plan few.plan --cluster few.cluster --json >out 2>err && grep -q '"fits":true' out ||
  { cat err; fail "a rank without a piece"; }

# Servers of parameters: parts add up, a step is at least as long as each load of it, and what servers do can be left out.
printf 'cluster many {\n device = c\n level node { count = 8; link = 100MB/s; latency = 20us; kind = switch }\n}\ndevice c { base = cpu; cores = 1; memory = 1GiB }\n' >many.cluster
for staleness in 0 2 none; do
  printf 'mesh { data = 4 }\nplan { sync = server(ranks = 4..5, staleness = %s) }\n' $staleness >servers.plan
  for without in alignment server; do
    "$dnnc" simulate "$root/models/mlp.dnn" --cluster many.cluster --plan servers.plan --without $without --json \
      >"$staleness-$without.json" || fail "servers with staleness $staleness"
  done
done
python3 - <<'END_OF_PYTHON' || fail "servers"
import json
for staleness in "0", "2", "none":
    out, free = (json.load(open(f"{staleness}-{name}.json")) for name in ("alignment", "server"))
    loads = out["servers"]
    assert loads["staleness"] == (None if staleness == "none" else int(staleness)) and loads["workers"] == 4
    assert abs(sum(out["terms"].values()) - out["step_s"]) < 1e-11
    for load in "compute_s", "link_s", "service_s":
        assert 0 < loads[load] < out["step_s"] * (1 + 1e-9), load
    assert loads["largest"] == "link"
    assert out["bytes_sent"] >= 4 * 535818 and [r["title"] for r in out["ranks"]] == ["workers", "server 0", "server 1"]
    assert all(r["compute_s"] + r["exposed_comm_s"] < out["step_s"] * (1 + 1e-9) for r in out["ranks"])
    assert loads["fastest_clock_s"] <= out["step_s"] <= loads["slowest_clock_s"]
    assert free["terms"]["server"] == 0 and free["step_s"] < out["step_s"] / 10
bsp, ssp, asp = (json.load(open(f"{s}-alignment.json"))["step_s"] for s in ("0", "2", "none"))
assert asp <= ssp <= bsp
END_OF_PYTHON
# All that is shown of a step adds up, on the page too.
for staleness in 0 2; do
  printf 'mesh { data = 4 }\nplan { sync = server(ranks = 4..5, staleness = %s) }\n' $staleness >servers.plan
  "$dnnc" show servers.plan --model "$root/models/mlp.dnn" --cluster many.cluster --json >page.json || fail "show servers"
  "$dnnc" show servers.plan --model "$root/models/mlp.dnn" --cluster many.cluster --html page.html >/dev/null &&
    python3 "$root/tests/e2e/page_numbers.py" page.html page.json >out || { cat out; fail "a page of servers"; }
  python3 -c '
import json
out = json.load(open("page.json"))
paths = {row["path"]: row for row in out["paths"]}
assert sum(row["time_ps"] for row in out["paths"]) == out["step_ps"]
assert abs(paths["servers"]["time_ps"] * 1e-12 - out["terms"]["server"]) < 1e-12
' || fail "paths of servers"
done
"$dnnc" show servers.plan --model "$root/models/mlp.dnn" --cluster many.cluster --trace trace.json >/dev/null && grep -q '"wait: servers"' trace.json ||
  fail "a trace of servers"
echo "simulate: schedules, models, deadlocks and mistakes"

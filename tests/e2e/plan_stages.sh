#!/bin/bash
# `dnnc plan --search stages` finds stages where these are faster than one program for all ranks:
# wide layers behind slow links.
. "$(dirname "$0")/lib.sh"
cat >deep.dnn <<'EOF'
dim B = 64, C = 512, K = 8
layer linear[I -> O](x: [..., I]) -> [..., O] {
  param w: [I, O] = he_uniform(I)
  return dot(x, w, I)
}
net deep(x: [B, C]) -> [B, K] {
  repeat i in 16 { x = relu(linear[C -> C](x)) }
  return linear[C -> K](x)
}
data d { x: [B, C] = synthetic(); y: i32[B] = synthetic(K) }
train { loss = cross_entropy(deep(d.x), d.y, K); optimizer = sgd(lr = 0.01); steps = 20 }
EOF
cat >slow.cluster <<'EOF'
device core { base = cpu; memory = 1GiB }
cluster made { device = core; level node { count = 4; link = 50MB/s } }
EOF
plan() { "$dnnc" plan deep.dnn --cluster slow.cluster --quiet "$@"; }
step() { "$dnnc" simulate deep.dnn --plan "$1" --cluster slow.cluster --json >out.json 2>message && field step_s out.json; }

# ---- faster than without stages, by the simulator ----
plan --search stages -o staged.plan || fail "plan"
plan --search elimination -o one.plan || fail "plan of one stage"
grep -q '^  pipe = 4$' staged.plan && [ "$(grep -c '^  cut after ' staged.plan)" = 3 ] || { cat staged.plan; fail "no stages"; }
grep -q 'stages with equal meshes' staged.plan || fail "space"
grep -q '^  bound ' staged.plan && grep -q '^  floor ' staged.plan || fail "no bound, or no floor"
grep -q 'restrictions = "equal_stages single_cuts all_ranks' staged.plan || fail "restrictions"
plan --search stages --json >plan.json && awk -v b="$(field bound_s plan.json)" -v f="$(field floor_s plan.json)" \
  -v s="$(field step_s plan.json)" 'BEGIN { print "bound " b " s, step " s " s"; exit !(f < b && b <= s) }' || fail "bound"
awk -v a="$(step staged.plan)" -v b="$(step one.plan)" 'BEGIN { exit !(a > 0 && a < 0.8 * b) }' ||
  fail "$(step staged.plan) s with stages, $(step one.plan) s without"
[ "$(field step_s plan.json)" = "$(step staged.plan)" ] || fail "simulate has another step"

# ---- the same bytes, which mean the same plan ----
plan --search stages -o again.plan && cmp staged.plan again.plan || fail "another plan the second time"
"$dnnc" verify deep.dnn --plan staged.plan --cluster slow.cluster >out 2>&1 || { cat out; fail "verify"; }
grep -q '^bound: computed again' out || { cat out; fail "the bound was not computed again"; }
verify() { "$dnnc" verify deep.dnn --plan "$1" --cluster slow.cluster --certificate >out 2>&1; }
# The search gap is that of the bound and the largest load of the plan, on average over groups or of one operator.
awk -v b="$(field bound_s plan.json)" -v l="$(field load_s plan.json)" -v g="$(field search_gap plan.json)" -v s="$(field step_s plan.json)" \
  'BEGIN { d = g - (1 - b / l); exit !(b <= l && l <= s && d < 1e-6 && d > -1e-6) }' || fail "search gap"
grep -qE '"load":"[^"]*(on average over|which one group)' plan.json || fail "no load in words"
sed -E 's/^(  search_gap *=).*/\1 0.9/' staged.plan >gap.plan
! verify gap.plan && grep -q 'the search gap is not' out || { cat out; fail "another search gap"; }
# A bound raised by 0.1 %, with its gap, is refused; so is one whose restrictions leave out stages.
raise() {
  awk -v by="$2" '/^  step /{ s = $3 + 0 } /^  bound /{ b = $3 * by; $0 = sprintf("  bound = %.9fms", b) }
    /^  gap /{ $0 = sprintf("  gap = %.17g", 1 - b / s) } /^  search_gap /{ next } { print }' "$1"
}
raise staged.plan 1 >same.plan && verify same.plan || { cat out; fail "the same bound"; }
raise staged.plan 1.001 >raised.plan && ! verify raised.plan && grep -q 'the bound is not one' out || { cat out; fail "a raised bound"; }
sed 's/equal_stages single_cuts/one_stage/' staged.plan >other.plan
! verify other.plan && grep -q 'has stages' out || { cat out; fail "a bound of plans without stages"; }
# The word 'auto' stands for this plan.
"$dnnc" ir deep.dnn --plan auto --cluster slow.cluster --search stages --after=partition >auto.ir 2>message || { cat message; fail "auto"; }
"$dnnc" ir deep.dnn --plan staged.plan --after=partition >staged.ir 2>message && cmp auto.ir staged.ir || fail "auto is another plan"
"$dnnc" simulate deep.dnn --plan auto --search stages --cluster slow.cluster --json >out.json 2>message
[ "$(field step_s out.json)" = "$(field step_s plan.json)" ] || { cat message; fail "simulate auto"; }
losses() { grep -o '"loss":[^,}]*' "$1"; }
"$dnnc" run deep.dnn --steps 3 --no-save --json >one.json 2>message || { cat message; fail "run"; }
"$dnnc" run deep.dnn --plan staged.plan --steps 3 --no-save --json >staged.json 2>message || { cat message; fail "run with stages"; }
[ "$(losses one.json | wc -l)" -ge 3 ] || fail "no losses"
paste <(losses one.json | cut -d: -f2) <(losses staged.json | cut -d: -f2) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) exit 1 }' || { losses one.json; losses staged.json; fail "other losses"; }

# ---- the page: calls of all classes, and the best plan of each number of groups and schedule ----
if command -v python3 >/dev/null; then
  plan --search stages --html page.html --json >plan.json || fail "--html"
  python3 - <<'END' || { cut -c1-3000 plan.json; fail "the table of stages"; }
import json
plan = json.load(open("plan.json"))
json.dump(plan["page"], open("page.json", "w"))
rows = plan["page"]["search"]["staged"]
assert rows[0]["step_ps"] == round(plan["step_s"] * 1e12) and rows[0]["priced_by"] == "simulator", rows[0]
assert [row["step_ps"] for row in rows] == sorted(row["step_ps"] for row in rows)
kinds = [(row["groups"], row["schedule"]) for row in rows]
assert len(kinds) == len(set(kinds)) and {2, 4} <= {groups for groups, _ in kinds} and (4, "1f1b") in kinds, kinds
assert any(row["priced_by"] == "estimate" for row in rows)
for row in rows:
    assert row["stages"] == (row["cuts"].count(",") + 2 if row["cuts"] else 1) and row["stages"] % row["groups"] == 0, row
assert any("4 stages" in mesh["mesh"] for mesh in plan["page"]["search"]["meshes"])
calls = {bar["call"] for row in plan["page"]["calls"] for bar in row}
assert len(plan["page"]["calls"]) == 4 and {"F", "I", "W", "UPDATE", "wait"} <= calls, calls
END
  python3 "$root/tests/e2e/page_numbers.py" page.html page.json || fail "numbers of the page"
  for mark in '<h2>Calls</h2>' 'gradients of values' 'waits for messages' 'cuts after'; do
    grep -q "$mark" page.html || fail "no $mark"
  done
fi

# ---- where there are none ----
plan --search stages --ranks 1 -o alone.plan && grep -q 'no stages (there is one rank)' alone.plan || fail "one rank"
printf 'mesh { data = 4 }\nplan { }\n' >data.plan
plan --search stages --plan data.plan -o pinned.plan && grep -q 'no stages (the mesh is written)' pinned.plan || fail "a written mesh"

# ---- one micro-batch ----
# A fast machine behind a slow link has all the work, in a stage of its own.
cat >one.dnn <<'END'
dim B = 16, K = 2048, H = 7, O = 8
net m(x: [B, K]) -> [B, O] {
  param u: [K, H] = normal(0.1)
  param w: [H, O] = normal(0.1)
  x = relu(dot(x, u, K))
  return dot(x, w, H)
}
data d {
  x: [B, K] = synthetic()
  y: [B, O] = synthetic()
}
train {
  loss = mse(m(d.x), d.y)
  optimizer = sgd(lr = 0.1)
  steps = 2
}
plan { microbatches = 1 }
END
cat >one.cluster <<'END'
cluster machines {
  group fast { device = fast; level node { count = 1; link = 1Gb/s } }
  group slow { device = slow; level node { count = 1; link = 1Gb/s } }
  level room { link = 1Gb/s; latency = 30us }
}
device fast { base = a100_80g }
device slow { base = v100_16g; flops_f32 = 300G }
END
"$dnnc" plan one.dnn --cluster one.cluster --search stages --quiet -o one.plan
grep -q 'stage 1' one.plan && grep -q 'microbatches = 1$' one.plan || fail "one micro-batch"

#!/bin/bash
# `dnnc plan --search stages` finds stages of different numbers of ranks, on several kinds of devices:
# one fast rank computes as much as three slow ones behind a slow link.
. "$(dirname "$0")/lib.sh"
cat >deep.dnn <<'EOD'
dim B = 48, T = 16, C = 256, K = 8
layer linear[I -> O](x: [..., I]) -> [..., O] {
  param w: [I, O] = he_uniform(I)
  return dot(x, w, I)
}
net deep(x: [B, T, C]) -> [B, K] {
  repeat i in 8 { x = relu(linear[C -> C](x)) }
  return linear[C -> K](mean(x, T))
}
data d { x: [B, T, C] = synthetic(); y: i32[B] = synthetic(K) }
train { loss = cross_entropy(deep(d.x), d.y, K); optimizer = sgd(lr = 0.01); steps = 20 }
EOD
cat >two.cluster <<'EOD'
device fast { base = cpu; memory = 1GiB; cores = 1; flops_f32 = 60G }
device slow { base = cpu; memory = 1GiB; cores = 1; flops_f32 = 20G }
cluster made {
  group new { device = fast; level node { count = 1; link = 2GB/s } }
  group old { device = slow; level node { count = 3; link = 2GB/s } }
  level room { link = 50MB/s }
}
EOD
plan() { "$dnnc" plan deep.dnn --cluster two.cluster --quiet "$@"; }
step() { "$dnnc" simulate deep.dnn --plan "$1" --cluster two.cluster --json >out.json 2>message && field step_s out.json; }

# ---- faster than without stages, by the simulator ----
plan --search stages -o staged.plan || fail "plan"
plan --search elimination -o one.plan || fail "plan of one stage"
grep -Eq '^  stage [01]: .* on (0..2|1..3)( |$)' staged.plan && [ "$(grep -c '^  stage ' staged.plan)" = 2 ] || { cat staged.plan; fail "no stages of 1 and 3 ranks"; }
grep -q 'stages of their own numbers of ranks' staged.plan || fail "space"
awk -v a="$(step staged.plan)" -v b="$(step one.plan)" 'BEGIN { exit !(a > 0 && a < 0.8 * b) }' ||
  fail "$(step staged.plan) s with stages, $(step one.plan) s without"
plan --search stages --json >plan.json || fail "--json"
[ "$(field step_s plan.json)" = "$(step staged.plan)" ] || fail "simulate has another step"

# ---- the same bytes, which mean the same plan ----
plan --search stages -o again.plan && cmp staged.plan again.plan || fail "another plan the second time"
"$dnnc" verify deep.dnn --plan staged.plan --cluster two.cluster >out 2>&1 || { cat out; fail "verify"; }
losses() { grep -o '"loss":[^,}]*' "$1"; }
"$dnnc" run deep.dnn --steps 3 --no-save --json >one.json 2>message || { cat message; fail "run"; }
"$dnnc" run deep.dnn --plan staged.plan --steps 3 --no-save --json >staged.json 2>message || { cat message; fail "run with stages"; }
[ "$(losses one.json | wc -l)" -ge 3 ] || fail "no losses"
paste <(losses one.json | cut -d: -f2) <(losses staged.json | cut -d: -f2) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) exit 1 }' || { losses one.json; losses staged.json; fail "other losses"; }

# ---- no stage straddles two kinds ----
awk '/^  stage / { match($0, / on [0-9]+(\.\.[0-9]+)?/); split(substr($0, RSTART + 4, RLENGTH - 4), r, "[.][.]");
  if (r[1] == 0 && r[2] > 0) exit 1 }' staged.plan || fail "a stage on both kinds"

# ---- ZeRO with meshes of two sizes leaves the batch in its shards ----
sed 's/count = 3/count = 4/' two.cluster >five.cluster
for zero in 0 1; do
  cat >zero$zero.plan <<EOD
plan {
  schedule = 1f1b
  microbatches = 4
  zero = $zero
  stage 0: linear[0] on 0..1 as (data = 2)
  stage 1: linear[1] on 2..4 as (data = 3)
}
EOD
done
zero_step() { "$dnnc" simulate deep.dnn --plan "zero$1.plan" --cluster five.cluster --json >out.json 2>message && field step_s out.json; }
awk -v a="$(zero_step 1)" -v b="$(zero_step 0)" 'BEGIN { exit !(a > 0 && a < 1.2 * b) }' || fail "ZeRO 1: $(zero_step 1) s, without $(zero_step 0) s"
"$dnnc" verify deep.dnn B=24 T=2 --plan zero1.plan >out 2>&1 || { cat out; fail "verify with ZeRO 1"; }

#!/bin/bash
# `dnnc plan --search stages` shards operators inside of a stage on its own ranks: wide products on
# the fast devices of two kinds behind a slow link.
. "$(dirname "$0")/lib.sh"
cat >wide.dnn <<'EOD'
dim B = 32, T = 64, C = 256, F = 2048, K = 8
layer linear[I -> O](x: [..., I]) -> [..., O] {
  param w: [I, O] = he_uniform(I)
  return dot(x, w, I)
}
net wide(x: [B, T, C]) -> [B, K] {
  repeat i in 4 { x = relu(linear[C -> C](x)) }
  x = relu(linear[C -> F](mean(x, T)))
  x = relu(linear[F -> F](x))
  return linear[F -> K](x)
}
data d { x: [B, T, C] = synthetic(); y: i32[B] = synthetic(K) }
train { loss = cross_entropy(wide(d.x), d.y, K); optimizer = sgd(lr = 0.01); steps = 20 }
EOD
cat >two.cluster <<'EOD'
device fast { base = cpu; memory = 1GiB; cores = 1; flops_f32 = 60G }
device slow { base = cpu; memory = 1GiB; cores = 1; flops_f32 = 20G }
cluster made {
  group new { device = fast; level node { count = 4; link = 2GB/s } }
  group old { device = slow; level node { count = 4; link = 1GB/s; latency = 1us } }
  level room { link = 20MB/s }
}
EOD
plan() { "$dnnc" plan wide.dnn --cluster two.cluster --quiet "$@"; }
step() { "$dnnc" simulate wide.dnn --plan "$1" --cluster two.cluster --json >out.json 2>message && field step_s out.json; }

# ---- a stage along tensor, faster than the best one that shares the batch alone ----
plan --search stages -o staged.plan && plan --search stages --json >plan.json || fail "plan"
grep -Eq '^  stage [0-9]+: .* as \((data = [0-9]+, )?tensor = [248]\)$' staged.plan || { cat staged.plan; fail "no stage along tensor"; }
grep -q 'shard linear.*!dot: .* over tensor' staged.plan || { cat staged.plan; fail "no operator along tensor"; }
grep -q 'neighbours shard operators' staged.plan || fail "space"
cat >batch.plan <<'EOD'
plan {
  schedule = 1f1b
  microbatches = 4
  zero = 1
  stage 0: linear[0], x[0], mean on 0..1 as (data = 2)
  stage 1: linear[1], x[1], linear[2], x[2], linear[3] on 2..3 as (data = 2)
  stage 2: loss on 4..7 as (data = 4)
  shard B over data
}
EOD
awk -v a="$(step staged.plan)" -v b="$(step batch.plan)" 'BEGIN { exit !(a > 0 && b > 0 && a < 0.8 * b) }' ||
  fail "$(step staged.plan) s along tensor, $(step batch.plan) s without"
[ "$(field step_s plan.json)" = "$(step staged.plan)" ] || fail "simulate has another step"

# ---- the same bytes; as pins the same plan; what one rank computes ----
plan --search stages -o again.plan && cmp staged.plan again.plan || fail "another plan the second time"
lines() { sed '/^certificate/,$d' "$1"; }
plan --plan staged.plan -o pinned.plan && diff <(lines staged.plan) <(lines pinned.plan) || fail "another plan with these pins"
"$dnnc" verify wide.dnn --plan staged.plan --cluster two.cluster >out 2>&1 || { cat out; fail "verify"; }
grep -q '^bound: computed again' out || { cat out; fail "the bound was not checked"; }
losses() { grep -o '"loss":[^,}]*' "$1"; }
"$dnnc" run wide.dnn --steps 3 --no-save --json >one.json 2>message || { cat message; fail "run"; }
"$dnnc" run wide.dnn --plan staged.plan --steps 3 --no-save --json >staged.json 2>message || { cat message; fail "run along tensor"; }
[ "$(losses one.json | wc -l)" -ge 3 ] || fail "no losses"
paste <(losses one.json | cut -d: -f2) <(losses staged.json | cut -d: -f2) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) exit 1 }' || { losses one.json; losses staged.json; fail "other losses"; }

# ---- a line about a value whose gradient the next stage makes, which lacks the axis ----
cat >residual.dnn <<'EOD'
dim B = 8, T = 8, C = 4, F = 16, K = 6
layer mlp(x: [B, T, C]) -> [B, T, C] {
  param w1: [C, F] = normal(0.1)
  param w2: [F, C] = normal(0.1)
  return x + dot(gelu(dot(x, w1, C)), w2, F)
}
net residual(x: [B, T, C]) -> [B, T, K] {
  x = mlp(mlp(x))
  param head: [C, K] = normal(0.1)
  return dot(x, head, C)
}
data d { x: [B, T, C] = synthetic(); y: [B, T, K] = synthetic() }
train { loss = mse(residual(d.x), d.y); optimizer = adamw(lr = 0.1); steps = 2 }
EOD
cat >residual.plan <<'EOD'
plan {
  schedule = 1f1b
  microbatches = 2
  stage 0: mlp on 0..3 as (data = 2, tensor = 2)
  stage 1: loss on 4..5 as (data = 2)
  shard B over data
  shard mlp.dot[1]: B over data, T over tensor
}
EOD
"$dnnc" verify residual.dnn --plan residual.plan >out 2>&1 || { cat out; fail "a line about a value that goes on"; }

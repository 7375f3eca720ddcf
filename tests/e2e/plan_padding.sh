#!/bin/bash
# Shards that are padded count: a bound is below plans that have them, and where they alone fit they are
# found.  The models are cases of bench_sound (2078, 2354, 2617, 2738; 2973, where few placements fit).
. "$(dirname "$0")/lib.sh"

cluster() { # COUNT LINK LATENCY DEVICE_LINE...
  printf 'cluster machines {\n  device = d0\n  level node { count = %s; link = %s; latency = %s; kind = fat_tree }\n}\n\n' \
    "$1" "$2" "$3" >machines.cluster
  shift 3
  { echo 'device d0 {'; printf '  %s\n' "$@"; echo '}'; } >>machines.cluster
}
# price PLAN: its step in seconds, once it fits.
price() {
  "$dnnc" simulate model.dnn --cluster machines.cluster --plan "$1" --json >price.json 2>price.err ||
    { cat price.err; fail "$1 does not compile"; }
  sed 's/.*"step_s":\([^,}]*\).*/\1/' price.json
}

# ---- a batch of three on two ranks: one computes two samples, which beats three on both ----
cat >model.dnn <<'END'
dim B = 3, Y = 16, X = 16, C0 = 1024, O0 = 256, O1 = 3
layer conv0(x: [B, C0, Y, X]) {
  param w: [O0, C0, Y:3, X:3] = normal(0.1)
  return relu(conv(x, w, C0, (Y, X), pad = 1))
}
layer conv1(x: [B, O0, Y, X]) {
  param w: [O1, O0, Y:3, X:3] = normal(0.1)
  return relu(conv(x, w, O0, (Y, X), pad = 1))
}
net m(x: [B, C0, Y, X]) -> [B, O1] {
  x = conv0(x)
  x = conv1(x)
  return mean(x, (Y, X))
}
data d {
  x: [B, C0, Y, X] = synthetic()
  y: [B, O1] = synthetic()
}
train {
  loss = mse(m(d.x), d.y)
  optimizer = sgd(lr = 0.1, momentum = 0.9)
  steps = 2
}
END
cluster 2 100Gb/s 1us 'base = v100_16g' 'flops_f32 = 300G' 'bandwidth = 100GB/s'
printf 'mesh { a = 2 }\nplan {\n  shard B over a\n  shard C0 over a\n}\n' >three.plan
"$dnnc" plan model.dnn --cluster machines.cluster --json -o found.plan >found.json 2>found.err ||
  { cat found.err; fail "no plan"; }
bound=$(sed 's/.*"bound_s":\([^,}]*\).*/\1/' found.json)
step=$(sed 's/.*"step_s":\([^,}]*\).*/\1/' found.json)
three=$(price three.plan)
awk -v bound="$bound" -v step="$step" -v three="$three" 'BEGIN { exit !(0 < bound && bound <= three && step <= three) }' ||
  fail "a step of $three s, a plan of $step s and a bound of $bound s"
"$dnnc" verify model.dnn --plan found.plan --cluster machines.cluster >verify.out 2>&1 ||
  { cat verify.out; fail "the certificate is refused"; }

# ---- no other plans fit ----
# fits PLAN OPTION...: this plan fits, and the search finds one.
fits() {
  local written=$1
  shift
  price "$written" >step.txt
  grep -q '"fits":true' price.json || { cat price.json; fail "$written does not fit"; }
  "$dnnc" plan model.dnn --cluster machines.cluster "$@" -o found.plan >found.out 2>&1 ||
    { cat found.out; fail "no plan is found, and $written fits"; }
}

# Four ranks, a batch of three; the layer is computed again.
cat >model.dnn <<'END'
dim B = 3, T = 6, C0 = 7, V0 = 7, H1 = 1024
layer mlp0(x: [B, T, C0]) {
  param w1: [C0, H1] = normal(0.1)
  param w2: [H1, C0] = normal(0.1)
  return x + dot(tanh(dot(x, w1, C0)), w2, H1)
}
net m(x: i32[B, T]) -> [B, T, V0] {
  param table: [V0, C0] = normal(0.1)
  x = gather(table, x, V0)
  x = mlp0(x)
  return dot(x, table, C0)
}
data d {
  x: i32[B, T] = synthetic(V0)
  y: i32[B, T] = synthetic(V0)
}
train {
  loss = cross_entropy(m(d.x), d.y, V0)
  optimizer = adam(lr = 0.1)
  steps = 2
}
END
cluster 4 3GB/s 30us 'base = h100_sxm' 'memory = 90117B' 'reserve = 1B'
printf 'mesh { a = 4 }\nplan {\n  microbatches = 1\n  zero = 3\n  shard "!dot": C0 over a\n}\n' >pins.plan
printf 'mesh { a = 4 }\nplan {\n  shard B over a\n  shard C0 over a\n  shard H1 over a\n  remat mlp0\n  microbatches = 1\n  zero = 3\n  shard "!dot": C0 over a\n}\n' >four.plan
fits four.plan --plan pins.plan

# Channels of three over two ranks, the batch and the sequence over the four others.
cat >model.dnn <<'END'
dim B = 5, T = 1024, C0 = 3, V0 = 4096
layer norm0(x: [B, T, C0]) {
  param g: [C0] = ones
  return layernorm(x, C0) * g
}
net m(x: i32[B, T]) -> [B, T, C0] {
  param table: [V0, C0] = normal(0.1)
  x = gather(table, x, V0)
  x = norm0(x)
  return x
}
data d {
  x: i32[B, T] = synthetic(V0)
  y: [B, T, C0] = synthetic()
}
train {
  loss = mse(m(d.x), d.y)
  optimizer = adam(lr = 0.1)
  steps = 2
}
END
cluster 8 25GB/s 5us 'base = a100_80g' 'memory = 89605B' 'reserve = 1B'
printf 'mesh { a = 2; b = 4 }\nplan {\n  keep norm0\n}\n' >pins.plan
printf 'mesh { a = 2; b = 4 }\nplan {\n  zero = 1\n  shard B over b\n  shard T over b\n  shard C0 over a\n  keep norm0\n}\n' >eight.plan
fits eight.plan --plan pins.plan

# Channels and the batch over the same seven ranks: labels have no channels.
cat >model.dnn <<'END'
dim B = 8, Y = 16, X = 16, C0 = 768, K1 = 6
layer bn0(x: [B, C0, Y, X]) {
  state mean: [C0] = zeros
  state var: [C0] = ones
  return batchnorm(x, (B, Y, X), mean, var, eps = 1e-5)
}
net m(x: [B, C0, Y, X]) -> [B, K1] {
  x = bn0(x)
  x = mean(x, (Y, X))
  param head: [C0, K1] = normal(0.1)
  return dot(x, head, C0)
}
data d {
  x: [B, C0, Y, X] = synthetic()
  y: i32[B] = synthetic(K1)
  eval = 32
}
train {
  loss = cross_entropy(m(d.x), d.y, K1)
  optimizer = sgd(lr = 0.1, momentum = 0.9)
  steps = 2
  clip = 1.0
}
END
cluster 7 300GB/s 0s 'base = a100_80g'
printf 'plan {\n  remat bn0\n  memory = 916744B\n}\n' >pins.plan
printf 'mesh { a = 7 }\nplan {\n  shard B over a\n  shard C0 over a\n  remat bn0\n  memory = 916744B\n}\n' >seven.plan
fits seven.plan --plan pins.plan

# Four dims, each over other axes, and pins for both products.
cat >model.dnn <<'END'
dim B = 5, T = 1024, C0 = 4096, V0 = 64, G0 = 8192
layer gate0(x: [B, T, C0]) {
  param w1: [C0, G0] = normal(0.1)
  param w2: [C0, G0] = normal(0.1)
  return silu(dot(x, w1, C0)) * dot(x, w2, C0)
}
net m(x: i32[B, T]) -> [B, T, G0] {
  param table: [V0, C0] = normal(0.1)
  x = gather(table, x, V0)
  x = gate0(x)
  return x
}
data d {
  x: i32[B, T] = synthetic(V0)
  y: [B, T, G0] = synthetic()
  eval = 32
}
train {
  loss = mse(m(d.x), d.y)
  optimizer = adam(lr = 0.1)
  steps = 2
}
END
cluster 4 10Gb/s 0s 'base = titan_x' 'flops_f32 = 5T' 'bandwidth = 3TB/s'
pins='  remat gate0\n  shard gate0!dot[1]: C0 over b, G0 over a\n  zero = 2\n  microbatches = 1
  shard gate0!dot[0]: T over (a, b)\n  memory = 722212100B\n}\n'
printf "mesh { a = 2; b = 2 }\nplan {\n$pins" >pins.plan
printf "mesh { a = 2; b = 2 }\nplan {\n  shard G0 over (a, b)\n  shard C0 over b\n  shard V0 over b\n  shard T over (a, b)\n  shard B over none\n$pins" >many.plan
fits many.plan --plan pins.plan
echo "the bound of three samples on two ranks is $bound s, and plans that fit are found"

# ---- windows over more than 64 shards, which ended with a fault ----
cat >model.dnn <<'END'
dim B = 1, Y = 256, X = 4, C = 2, O = 2
net m(x: [B, C, Y, X]) -> [B, O] {
  param w: [O, C, Y:3, X:3] = normal(0.1)
  return mean(relu(conv(x, w, C, (Y, X), pad = 1)), (Y, X))
}
data d { x: [B, C, Y, X] = synthetic(); y: i32[B] = synthetic(O) }
train { loss = cross_entropy(m(d.x), d.y, O); optimizer = sgd(lr = 0.01); steps = 1 }
END
printf 'mesh { rows = 128 }\nplan { shard Y over rows }\n' >rows.plan
"$dnnc" verify model.dnn --plan rows.plan >out 2>&1 && grep -q '^m on 128 ranks .*: equal to one rank$' out || { cat out; fail "128 shards"; }

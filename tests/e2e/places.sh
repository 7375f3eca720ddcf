#!/bin/bash
# Two equal branches on two ranks are computed at the same time, and `show` says which
# ranks have them.
. "$(dirname "$0")/lib.sh"
cat >two.dnn <<'EOF'
dim B = 8192, P = 4096, H = 4096, K = 8
layer linear[I -> O](x: [..., I]) -> [..., O] {
  param w: [I, O] = he_uniform(I)
  return dot(x, w, I)
}
layer branch(x: [B, H]) -> [B, H] {
  repeat i in 6 { x = relu(linear[H -> H](x)) }
  return x
}
net two(x: [B, P]) -> [B, K] {
  x = relu(linear[P -> H](x))
  return linear[H -> K](branch(x) + branch(x))
}
data d { x: [B, P] = synthetic(); y: i32[B] = synthetic(K) }
train {
  loss      = cross_entropy(two(d.x), d.y, K)
  optimizer = sgd(lr = 0.01)
  steps     = 20
}
EOF
cat >two.cluster <<'EOF'
cluster two {
  device = gpu
  level node { count = 3; link = 80000GB/s; latency = 0us; kind = switch }
}
device gpu { base = a100_80g }
EOF
echo 'plan { place branch[0] on 0 }' >one.plan
echo 'plan { place branch[0] on 1 }' >two.plan
echo 'plan { place branch[0] on 1; place branch[1] on 2 }' >three.plan
# step PLAN: the milliseconds of a step.
step() {
  "$dnnc" simulate two.dnn --plan "$1" --cluster two.cluster >out 2>err || { cat err; fail "no price of $1"; }
  sed -n 's/.* a step takes \([0-9.]*\) ms.*/\1/p' out
}
one=$(step one.plan)
# Each branch has 6 of 13 equal products, so that 7 follow each other on two or three ranks.
for plan in two.plan three.plan; do
  is=$(step $plan)
  awk "BEGIN { exit !($is > 0.45 * $one && $is < 0.58 * $one) }" || fail "$plan takes $is ms, one rank $one ms"
  echo "$plan: $is ms, one rank $one ms"
done
"$dnnc" show three.plan --model two.dnn >out 2>err || { cat err; fail "places are not shown"; }
grep -q '^  1  *1 .* branch\[0\]' out && grep -q '^  2  *2 .* branch\[1\]' out ||
  { cat out; fail "other ranks are shown"; }
"$dnnc" show three.plan >out && grep -q '^  place  *branch\[1\] on 2 *$' out || { cat out; fail "the lines are not shown"; }

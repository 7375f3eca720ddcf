#!/bin/bash
# A dynamic loss scale in f16: steps that overflow are skipped on all ranks, the
# scale halves until they do not, and a run that is cut in the middle of the
# skipping ends with the same bits.
. "$(dirname "$0")/lib.sh"
cat >"$work/big.dnn" <<'MODEL'
dim B = 8, C = 4, D = 3
net f(x: [B, C]) -> [B, D] {
  param w: [C, D] = normal(0.1)
  return dot(x, w, C)
}
data d {
  x: [B, C] = synthetic()
  y: [B, D] = synthetic()
}
train {
  loss      = 300 * mse(f(d.x), d.y)
  optimizer = adamw(lr = 0.01)
  steps     = 30
  save      = "big.ckpt"
}
precision { compute = f16; loss_scale = dynamic }
MODEL
cd "$work"
"$dnnc" build big.dnn --ranks 2 -o whole >/dev/null || fail "build"
./whole/run --json >whole.log || fail "run: $(tail -n 1 whole.log)"
grep -q '"skipped":true' whole.log || fail "no step was skipped"
head -n 30 whole.log | tail -n 5 | grep -q '"skipped":true' && fail "it never fits"
mv big.ckpt first.ckpt
./whole/run --json --steps 2 >half.log || fail "first half"
./whole/run --json --resume >rest.log || fail "second half"
sum() { grep -o '"parameters_sha256":[^]]*]' "$1"; }
[ -n "$(sum whole.log)" ] && [ "$(sum whole.log)" = "$(sum rest.log)" ] ||
  fail "resumed: $(sum rest.log), not $(sum whole.log)"

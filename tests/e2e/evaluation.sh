#!/bin/bash
# What evaluation sees: moving averages, metrics over all samples.
. "$(dirname "$0")/lib.sh"
seq 0 399 | awk '{ x = $1 % 20; print x "," (x > 9) "," (x * 7) % 5 }' >rows.csv

cat >average.dnn <<'END'
dim B = 16, K = 2
net line(x: [B]) -> [B, K] {
  param w, b: [K] = normal(1)
  return x * w + b
}
data d {
  x: [B] = csv("rows.csv", 0) / 10
  y: i32[B] = csv("rows.csv", 1)
  eval = 100
}
train {
  loss      = cross_entropy(line(d.x), d.y, K)
  optimizer = sgd(lr = 0.5)
  steps     = 10
}
END
evaluate() { # settings
  "$dnnc" run average.dnn --json --no-save "$@" >out.json 2>out.err ||
    { cat out.err; fail "average.dnn $*"; }
  field validation_loss out.json
}
before=$(evaluate optimizer='sgd(lr = 0)')
after=$(evaluate)
slow=$(evaluate ema=0.9999999)
fast=$(evaluate ema=1e-9)
echo "average: before $before after $after, ema near 1 $slow, near 0 $fast"
close "$before" "$slow" 1e-4 || fail "an average that hardly moves"
close "$after" "$fast" 1e-4 || fail "an average that forgets at once"
close "$before" "$after" 1e-2 && fail "the model does not learn"
two=$(evaluate ema=0.8 --microbatches 2)
close "$(evaluate ema=0.8)" "$two" 1e-5 || fail "average with micro-batches"
exit 0

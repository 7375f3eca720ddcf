#!/bin/bash
# Evaluation reads the moving averages and computes metrics over all samples.
. "$(dirname "$0")/lib.sh"
seq 0 399 | awk '{ x = $1 % 20; print x "," (x > 9) "," (x * 7) % 5 }' >rows.csv

cp "$root/tests/e2e/average.dnn" .
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

# Metrics: 100 evaluation samples in six batches of 16 and one of 4.
cat >metrics.dnn <<'END'
dim B = 16, K = 5
net line(x: [B]) -> [B, K] {
  param w, b: [K] = normal(1)
  return x * w + b
}
data d {
  x: [B] = csv("rows.csv", 0) / 10
  y: i32[B] = csv("rows.csv", 2)
  eval = 100
}
train {
  loss      = cross_entropy(line(d.x), d.y, K)
  metrics   = [perplexity(line(d.x), d.y, K), accuracy(line(d.x), d.y, K),
               accuracy(line(d.x), d.y, K, top = 2), accuracy(line(d.x), d.y, K, top = 4),
               accuracy(line(d.x), d.y, K, top = 5), accuracy(round(line(d.x)) * 0, d.y, K, top = 2)]
  optimizer = sgd(lr = 0.1)
  steps     = 20
}
END
metrics() { # arguments
  "$dnnc" run metrics.dnn --json --no-save "$@" >out.json 2>out.err ||
    { cat out.err; fail "metrics.dnn $*"; }
  loss=$(field validation_loss out.json)
  echo "loss $loss $(grep -o '"metrics":{[^}]*}' out.json | tail -n 1)"
}
check_metrics() {
  local line
  line=$(metrics "$@") || fail "$line"
  echo "$line"
  echo "$line" | tr -d '{}"' | tr ',' ' ' | sed 's/metrics://' | awk '{
    for (i = 3; i <= NF; i++) { split($i, p, ":"); v[p[1]] = p[2] }
    d = v["perplexity"] / exp($2) - 1
    # In the last all logits are equal: the classes 0 and 1 are hits.
    exit !(d < 1e-5 && d > -1e-5 && v["accuracy[0]"] <= v["accuracy[1]"] &&
      v["accuracy[1]"] < v["accuracy[2]"] && v["accuracy[3]"] == 1 &&
      v["accuracy[2]"] < 1 && v["accuracy[4]"] == 0.4) }' || fail "metrics $*"
}
check_metrics
has_mpi && check_metrics --ranks 2

# Every third step and the last one are printed.
"$dnnc" run "$root/models/mlp.dnn" --data "$root" H1=16 H2=8 eval_batches=1 \
  --steps 7 --no-save --json --log-every 3 >out || fail "--log-every"
[ "$(sed -n 's/^{"step":\([0-9]*\),"loss".*/\1/p' out | tr '\n' ' ')" = "3 6 7 " ] ||
  { cat out; fail "--log-every 3 prints other steps"; }
exit 0

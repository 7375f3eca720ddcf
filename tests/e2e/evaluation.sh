#!/bin/bash
# Evaluation reads the moving averages and computes metrics over all samples.
. "$(dirname "$0")/lib.sh"
quick_kernels
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

# An evaluation does the micro-batches of training, its remainder the fewest that
# are equal and no larger; where a metric is no sum over them, the batch at once.
cat >parts.dnn <<'END'
dim B = 16, C = 6, K = 5
net parts(x: [B, C]) -> [B, K] {
  param w: [C, K]   = normal(1)
  param scale, shift: [C] = ones
  state mean: [C]   = zeros
  state var: [C]    = ones
  state last: [B, C] = zeros
  state largest: [] = -inf
  x = batchnorm(x, B, mean, var, group = 2) * scale + shift + 0.1 * last
  last = x
  largest = maximum(largest, max(x))
  return dot(x, w, C)
}
data d {
  x: [B, C] = csv("parts.csv", 0..5)
  y: i32[B] = csv("parts.csv", 6)
  eval = 59
}
train {
  loss      = cross_entropy(parts(d.x), d.y, K, ignore = 3)
  metrics   = [METRICS]
  optimizer = adam(lr = 0.01)
  ema       = 0.9
  steps     = 4
}
END
seq 1 187 | awk '{ for (i = 1; i < 7; i++) printf "%.3f,", sin($1 * i + i)
  print $1 % 5 }' >parts.csv
parts() { # file, metrics, arguments; prints the loss and the metrics
  local file=$1
  sed "s/METRICS/$2/" parts.dnn >"$file.dnn"
  shift 2
  "$dnnc" run "$file.dnn" --json --no-save "$@" >out.json 2>out.err ||
    { cat out.err; fail "$file.dnn $*"; }
  grep '"final"' out.json | sed 's/.*"validation_loss":/"loss":/; s/,"accuracy".*//' |
    tr -d '{}"' | sed 's/metrics://' | tr ',' '\n'
}
loops() { # file, entry point, arguments: micro-batches that it does
  local file=$1 entry=$2
  shift 2
  "$dnnc" ir "$file.dnn" --entry "$entry" --instructions "$@" |
    sed -n 's/^ *loop microbatches //p'
}
alike() { # two files of name:value
  paste -d: "$1" "$2" | awk -F: '{ d = $2 - $4; if (d < 0) d = -d
    bad = $1 != $3 || d > 2e-5 * ($2 < 0 ? -$2 : $2); if (bad) { print; exit 1 } }
    END { exit NR < 2 }'
}
sums='accuracy(parts(d.x), d.y, K), mean(pow(parts(d.x), 2)), max(parts(d.x))'
more="$sums, mean(std(parts(d.x), B))"
parts sums "$sums" >sums.txt
parts more "$more" >more.txt
for way in 2 4 8; do
  parts sums "$sums" --microbatches $way >got.txt
  alike sums.txt got.txt || fail "sums in $way micro-batches"
  parts more "$more" --microbatches $way >got.txt
  alike more.txt got.txt || fail "a deviation in $way micro-batches"
  [ "$(loops sums eval --microbatches $way)" = "$way" ] ||
    fail "an evaluation in $(loops sums eval --microbatches $way) micro-batches"
  [ -z "$(loops more eval --microbatches $way)" ] ||
    fail "a deviation does not keep the batch whole"
done
# 11 samples of at most 8, 4 or 2 each: the one divisor is 11.
[ "$(loops sums eval_remainder --microbatches 2)" = 11 ] || fail "a remainder"
[ -z "$(loops sums eval_remainder)" ] || fail "a remainder of one micro-batch"
if has_mpi; then
  parts sums "$sums" --microbatches 2 --ranks 2 >got.txt
  alike sums.txt got.txt || fail "sums in micro-batches on two ranks"
fi
"$dnnc" verify sums.dnn --microbatches 4 >out || { cat out; fail "verify"; }

# Every third step and the last one are printed.
"$dnnc" run "$root/models/mlp.dnn" --data "$root" H1=16 H2=8 eval_batches=1 \
  --steps 7 --no-save --json --log-every 3 >out || fail "--log-every"
[ "$(sed -n 's/^{"step":\([0-9]*\),"loss".*/\1/p' out | tr '\n' ' ')" = "3 6 7 " ] ||
  { cat out; fail "--log-every 3 prints other steps"; }
exit 0

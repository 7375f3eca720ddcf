#!/bin/bash
# Precision of 16 bits: typed values, averages of parameters, values that are
# not finite.
. "$(dirname "$0")/lib.sh"
train() { # name model arguments...
  local name=$1 model=$2
  shift 2
  DNN_POISON=1 "$dnnc" run "$model" --json --verify-ir "$@" >"$name.json" \
    2>"$name.err" || { cat "$name.err"; fail "$name"; }
}
same_loss() { # name name relative
  close "$(field loss "$1.json")" "$(field loss "$2.json")" "$3" ||
    fail "$2: loss $(field loss "$2.json"), not $(field loss "$1.json") of $1"
}

# Typed values keep their dtype whatever the rest computes in.
typed=$root/tests/precision/typed.dnn
for compute in f32 bf16 f16; do
  for level in -O0 -O2; do
    train "typed-$compute$level" "$typed" "precision.compute=$compute" $level \
      --no-save
    same_loss typed-f32-O0 "typed-$compute$level" 3e-3
  done
done
train whole "$typed" save=whole.ckpt
header() { head -c 3000 "$1"/*/*.safetensors | tr -d '\0' | tr '{' '\n'; }
for tensor in half.w:BF16 half.g:F16 wh:BF16 mean:BF16; do
  header whole.ckpt | grep -A1 "\"${tensor%:*}\":" | grep -q "\"${tensor#*:}\"" ||
    fail "the checkpoint has no ${tensor#*:} of '${tensor%:*}'"
done
"$dnnc" build "$typed" save=half.ckpt -o cut >/dev/null || fail "build"
./cut/run --json --steps 2 >half.json || fail "first half"
./cut/run --json --resume >rest.json || fail "second half"
[ -n "$(field parameters_sha256 rest.json)" ] &&
  [ "$(field parameters_sha256 rest.json)" = \
    "$(field parameters_sha256 whole.json)" ] || fail "resumed differently"
echo "typed: f32, bf16 and f16, -O0 and -O2, resumed"

# An average moves by thousandths, which 16 bits would not hold: it is f32.
cp "$root/tests/e2e/average.dnn" .
seq 0 399 | awk '{ x = $1 % 20; print x "," (x > 9) }' >rows.csv
average() { # name arguments...
  train "$@" steps=300 --no-save
  field validation_loss "$1.json"
}
wide=$(average wide average.dnn ema=0.998)
still=$(average still average.dnn ema=0.998 'optimizer=sgd(lr = 0)')
last=$(average last average.dnn)
for precision in "compute=bf16" "compute=f16" "compute=bf16 master=bf16"; do
  arguments=()
  for word in $precision; do arguments+=("precision.$word"); done
  short=$(average short average.dnn ema=0.998 "${arguments[@]}")
  close "$wide" "$short" 1e-2 || fail "average in $precision: $short, not $wide"
done
close "$wide" "$still" 5e-2 && fail "the average does not move"
close "$wide" "$last" 5e-2 && fail "the average is the last value"
echo "average: f32 $wide, 16 bits $short, before $still, last $last"

# The first value that is not finite may be one of 16 bits.
cat >large.dnn <<'END'
dim B = 2, C = 2, D = 1
net f(x: [B, C]) -> [B, D] {
  param w: [C, D] = ones
  large = tanh(x) * 70000
  return dot(large, w, C)
}
data d {
  x: [B, C] = csv("large.csv", 0..1)
  y: [B, D] = csv("large.csv", 2)
  order = sequential
}
train { loss = mse(f(d.x), d.y); optimizer = sgd(lr = 1e-6); steps = 30 }
precision { compute = f16 }
END
printf '1,1,0\n60,60,0\n' >large.csv
stops() { # name arguments...
  local name=$1
  shift
  "$dnnc" run large.dnn --no-save "$@" >"$name.out" 2>&1
  [ $? = 1 ] || fail "$name: it does not stop"
}
stops plain
grep -q "error: step 1: the loss is not finite; the first value that is not is in 'large' (forward)" plain.out ||
  { tail -n 3 plain.out; fail "the first value is not named"; }
# A scale is halved down to 1; what is not finite without one stops the run.
stops scaled precision.loss_scale=dynamic
grep -q "error: step 17: the loss scale fell below 1" scaled.out ||
  { tail -n 3 scaled.out; fail "the scale"; }
grep -q "error: step 17: the loss is not finite; the first value that is not is in 'large' (forward)" scaled.out ||
  { tail -n 3 scaled.out; fail "the first value under a scale"; }
"$dnnc" run large.dnn --no-save precision.compute=bf16 'optimizer=sgd(lr = 0)' >/dev/null 2>&1 ||
  fail "bf16 holds 70000"
echo "not finite: named, with and without a loss scale"

# A row of the lowest finite number, as a padding mask fills it, is no row of
# -inf: its loss is log 5, also where two ranks share the row.
lowest=-3.4028234e38
for zero in $lowest 0; do
  echo "$lowest,$lowest,$zero,$lowest,$lowest,2"
done >low.csv
cat >low.dnn <<'END2'
dim B = 2, S = 5
net f(x: [B, S]) -> [B, S] {
  param z: [S] = zeros
  return x + z
}
data d {
  x: [B, S] = csv("low.csv", 0..4)
  y: i32[B] = csv("low.csv", 5)
  order = sequential
}
train {
  loss      = cross_entropy(f(d.x), d.y, S)
  optimizer = sgd(lr = 1)
  steps     = 1
}
END2
printf 'mesh { m = 2 }\nplan { shard S over m }\n' >low.plan
train low low.dnn --no-save --quick
close 0.804719 "$(field loss low.json)" 1e-5 || fail "low rows"
if has_mpi; then
  train low2 low.dnn --no-save --quick --plan low.plan
  close 0.804719 "$(field loss low2.json)" 1e-5 || fail "low rows in shards"
fi
echo "low rows: $(field loss low.json)"

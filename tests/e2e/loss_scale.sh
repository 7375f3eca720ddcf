#!/bin/bash
# A dynamic loss scale in f16: steps that overflow are skipped on all ranks, the
# scale halves until they do not, and a run that is stopped and resumed between
# skipped steps ends with the same bits.
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
  eval = 16
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

# Whoever needs parameters alone does not miss the scale.
"$dnnc" eval big.dnn --load big.ckpt --json >eval.json 2>err || { cat err; fail "eval"; }
[ "$(field validation_loss eval.json)" = "$(field validation_loss whole.log)" ] || { cat eval.json; fail "another loss"; }
"$dnnc" predict big.dnn --load big.ckpt --quiet -o rows.npy 2>err || { cat err; fail "predict"; }
sed '/^precision/d' big.dnn >plain.dnn
"$dnnc" run plain.dnn --load big.ckpt --steps 1 --no-save --quiet 2>err || { cat err; fail "loaded without a scale"; }

# Sample 2 overflows where sample 1, on the other rank, has stopped to: both
# skip, by halves down to 512.  A skipped step leaves the states as they are.
cat >one.dnn <<'MODEL'
dim B = 2, C = 2, D = 1
net f(x: [B, C]) -> [B, D] {
  param w: [C, D] = ones
  state made: [] = 0
  made = made + 1
  return dot(x, w, C)
}
data d {
  x: [B, C] = csv("one.csv", 0..1)
  y: [B, D] = csv("one.csv", 2)
  order = sequential
}
train {
  loss      = mse(f(d.x), d.y)
  optimizer = sgd(lr = 1e-6)
  steps     = 12
  save      = "one.ckpt"
}
precision { compute = f16; loss_scale = dynamic }
MODEL
printf '1,1,0\n60,60,0\n' >one.csv
"$dnnc" build one.dnn --ranks 2 -o one >/dev/null || fail "build of one.dnn"
./one/run --json >one.log || fail "run of one.dnn: $(tail -n 1 one.log)"
scales=$(grep '"skipped":true' one.log | grep -o '"loss_scale":[0-9]*' |
  cut -d: -f2 | tr '\n' ' ')
[ "$scales" = "32768 16384 8192 4096 2048 1024 512 " ] || fail "scales: $scales"
file=$(echo one.ckpt/step-00000012/*.safetensors)
header=$(od -A n -t u8 -N 8 "$file" | tr -d ' ')
begin=$(head -c $((8 + header)) "$file" | tail -c "$header" |
  grep -o '"made":{[^}]*}' | sed 's/.*offsets":\[\([0-9]*\).*/\1/')
made=$(od -A n -t f4 -j $((8 + header + begin)) -N 4 "$file" | tr -d ' ')
[ "$made" = 5 ] || fail "the state counts $made steps, not 5"

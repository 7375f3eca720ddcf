#!/bin/bash
# `dnnc verify` finds the programs of plans equal to one rank, says so in words
# and as JSON, and refuses what has no training.
. "$(dirname "$0")/lib.sh"
sizes="P=7 H1=5 H2=6 K=3"

"$dnnc" verify "$root/models/mlp.dnn" --ranks 2 --microbatches 2 $sizes >words ||
  { cat words; fail "mlp on two ranks"; }
grep -q "2 micro-batches: equal to one rank" words || { cat words; fail "words"; }
for word in placements order messages memory; do
  grep -q "^$word: " words || fail "no line about $word"
done

"$dnnc" verify "$root/models/mlp.dnn" --plan "$root/models/mlp.plan" $sizes \
  --json >out.json || fail "mlp under its plan"
for key in equal placement_ok hang_free messages_match memory_ok; do
  [ "$(field $key out.json)" = true ] || { cat out.json; fail "$key"; }
done
close "$(field max_rel_error out.json)" 0 0 ||
  awk -v e="$(field max_rel_error out.json)" 'BEGIN { exit !(e < 1e-9) }' ||
  fail "max_rel_error"
grep -q '"seconds":' out.json || fail "no seconds"
[ "$(field batch_shards out.json)" = 2 ] || { cat out.json; fail "batch_shards"; }
grep -q '"path"' out.json && fail "a path of no difference"

"$dnnc" verify "$root/models/mlp.dnn" --ranks 2 >words || fail "sizes"
grep -q "^sizes: .*P 784 -> " words || { cat words; fail "no size shrinks"; }
grep -q "saving and loading" words || { cat words; fail "nothing is saved"; }
"$dnnc" verify "$root/models/chargpt.dnn" --ranks 2 L=6 --json >out.json ||
  fail "six blocks"
grep -q '"sizes":"[^"]*C [0-9]* -> ' out.json || { cat out.json; fail "sizes"; }
grep -q '"blocks":"block\[0..5\]"' out.json || { cat out.json; fail "blocks"; }

# A mistake that a pass finds is reported where blocks are folded, too.
cat >refused.plan <<'END'
mesh { seq = 16 }
plan {
  shard T over seq
  attention = ulysses
}
END
"$dnnc" verify "$root/models/gpt2.dnn" --plan refused.plan 2>message &&
  fail "more ranks than heads"
grep -q "^refused.plan:4:.*: error: " message || { cat message; fail "no error"; }

# Lines about some of the blocks: these are not equal, so all of them are played.
blocks() { # FOLDED LINE...: whether eight blocks are played as three
  local folded=$1
  shift
  printf 'mesh { tensor = 2 }\nplan {\n' >blocks.plan
  printf '  %s\n' "$@" >>blocks.plan
  echo '}' >>blocks.plan
  "$dnnc" verify "$root/models/chargpt.dnn" --plan blocks.plan L=8 T=8 --json >out.json 2>err ||
    { cat out.json err; fail "blocks: $*"; }
  [ "$(field equal out.json)" = true ] || { cat out.json; fail "blocks: $*: not equal"; }
  grep -q '"blocks":"block\[0..7\]"' out.json
  [ $? = "$folded" ] || { cat out.json; fail "blocks: $*: which are played"; }
}
hidden="shard F over tensor"
blocks 0 "$hidden" "remat block"
blocks 0 "$hidden" "remat block" "keep block.mlp"
blocks 1 "$hidden" "remat block[7]"
blocks 1 "$hidden" "remat block[0..3]"
blocks 1 "$hidden" "remat block" "keep block[5]"
blocks 1 "shard block[2].mlp.w1, block[3].mlp.w2: F over tensor"
blocks 1 'shard block[2].mlp!dot[0]: F over tensor'
blocks 1 "shard grad.block[2].mlp.w1: F over tensor"
blocks 1 "shard optimizer.block[2].mlp.w1: F over tensor"

# The gradient of the bias of a key is 0 but for rounding, which adafactor divides
# by its own size: f64 can tell little of what it makes of it.
cat >cancels.dnn <<'END'
dim B = 8, T = 6, C = 8, D = 4
layer attn(x: [B, T, C]) -> [B, T, C] {
  param wq: [C, D] = normal(0.5)
  param wk: [C, D] = normal(0.5)
  param bk: [D]    = zeros
  param wv: [C, D] = normal(0.5)
  param wo: [D, C] = normal(0.5)
  q = dot(x, wq, C)
  k = dot(x, wk, C) + bk
  v = dot(x, wv, C)
  p = softmax(dot(q, k[T -> S], D), S)
  return dot(dot(p, v[T -> S], S), wo, D)
}
net f(x: [B, T, C]) -> [B, T, C] { return x + attn(x) }
data set { x: [B, T, C] = synthetic() }
train { loss = mse(f(set.x), 0 * set.x); optimizer = adafactor(lr = 0.01); steps = 4 }
END
printf 'mesh { data = 2 }\nplan { zero = 3 }\n' >zero3.plan
"$dnnc" verify cancels.dnn --plan zero3.plan --json >out.json || { cat out.json; fail "terms that cancel"; }
[ "$(field widest_path out.json)" = attn.bk ] || { cat out.json; fail "terms that cancel: where"; }
"$dnnc" verify cancels.dnn --plan zero3.plan >words || fail "terms that cancel, in words"
grep -q "^terms cancel in what 'attn.bk' is computed from" words || { cat words; fail "terms that cancel, in words"; }

# LLaMA 405B on 2,048 ranks, with tensor, ring and ZeRO-3 in one plan.  It took
# 35 s of CPU time; the sizes that are played grow with what the plan shards, so
# a placement that is worse shows here.
TIMEFORMAT=%U
{ time "$dnnc" verify "$root/models/llama.dnn" C=16384 F=53248 L=126 H=16 \
  --plan "$root/benchmarks/plans/llama405b.plan" --json >out.json; } 2>seconds ||
  { cat out.json seconds; fail "LLaMA 405B"; }
tail -n 1 seconds | awk '{ exit !($1 < 90) }' ||
  fail "LLaMA 405B takes $(cat seconds) s of CPU time"
for key in equal placement_ok hang_free messages_match memory_ok single_elements; do
  [ "$(field $key out.json)" = true ] || { cat out.json; fail "405B: $key"; }
done

cat >net.dnn <<'END'
dim B = 2, C = 3
net double(x: [B, C]) -> [B, C] { return 2 * x }
END
"$dnnc" verify net.dnn 2>message && fail "a model without training"
grep -q "has no train block" message || fail "message"

cat >nan.dnn <<'END'
dim B = 4, C = 3
net f(x: [B, C]) -> [B, C] {
  param w: [C] = ones
  return log(w * x - 9)
}
data set { x: [B, C] = synthetic() }
train { loss = mse(f(set.x), 0 * set.x); optimizer = sgd(lr = 0.1); steps = 5 }
END
"$dnnc" verify nan.dnn --ranks 2 >words && fail "a loss that is not finite"
grep -q "micro-batch: not shown to be equal" words || { cat words; fail "verdict"; }
grep -q "^not compared: .* is not finite on one rank" words ||
  { cat words; fail "reason"; }
"$dnnc" verify nan.dnn --ranks 2 --json >out.json && fail "JSON of it"
[ "$(field equal out.json)" = false ] || { cat out.json; fail "not equal"; }
grep -q '"not_compared":' out.json || fail "no reason in JSON"

"$dnnc" verify "$root/models/mlp.dnn" --ranks 2 --microbatches 2 --bucket 100B \
  -O0 $sizes >words || { cat words; fail "small buckets at -O0"; }
"$dnnc" verify "$root/models/mlp.dnn" --ranks 2 --target cuda $sizes >words ||
  { cat words; fail "the program of CUDA"; }

# Factors of a rate that are no short fractions: one rank multiplies by one after the other.
sed -e 's/^  optimizer = .*/  optimizer = muon(lr = 0.01)\n  group linear.w { lr = 0.5x }/' "$root/models/mlp.dnn" >muon.dnn
"$dnnc" verify muon.dnn --ranks 2 P=4 H1=2 H2=2 K=3 >words || { cat words; fail "a group under muon"; }

# Gradients in 16 bits, loss scales, averages and a clip that acts.
for precision in "compute = bf16; grads = bf16" "compute = f16; loss_scale = dynamic" \
  "compute = f16; grads = f16; loss_scale = 1024"; do
  sed -e "s/^train {/precision { $precision }\n&\n  clip = 1.0\n  ema = 0.9/" \
    "$root/models/mlp.dnn" >mlp16.dnn
  "$dnnc" verify mlp16.dnn --ranks 2 --microbatches 2 --bucket 100B $sizes >words ||
    { cat words; fail "$precision"; }
  grep -q "^clip is set to " words || { cat words; fail "the clip does not act"; }
done
# NCCL would round such gradients at every rank: they are added in f32.
sed 's/data = 4/data = 2/' "$root/benchmarks/plans/zero2.plan" >zero2.plan
for plan in "--ranks 2" "--plan zero2.plan"; do
  # shellcheck disable=SC2086
  "$dnnc" verify mlp16.dnn $plan --microbatches 2 --target cuda $sizes >words || { cat words; fail "16 bits on CUDA"; }
  # shellcheck disable=SC2086
  "$dnnc" ir mlp16.dnn $plan --target cuda --verify-ir --after=bucket P=8 H1=8 H2=8 K=4 >cuda.ir || fail "ir for CUDA"
  grep -E ' (all_reduce|reduce_scatter) ' cuda.ir >sums || fail "no sums over ranks"
  ! grep -E ' : b?f16' sums || fail "sums of 16-bit floats on CUDA"
done
"$dnnc" ir mlp16.dnn --ranks 2 --after=bucket | grep -q ' all_reduce .* : f16' || fail "no sums of 16-bit floats over MPI"
echo "verify: words, JSON, plans and sizes"

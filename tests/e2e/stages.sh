#!/bin/bash
# Other plans resume what stages save; evaluation reads the averages of all
# stages, also where a stage has no data; they write the text of one rank; what
# cannot take stages says so.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
systems=$root/benchmarks/systems

# train NAME ARGUMENTS...: trains and writes its lines.
train() {
  local name=$1
  shift
  "$dnnc" run --quick --json "$@" >"$name.json" 2>"$name.err" </dev/null ||
    { cat "$name.err"; fail "$name does not train"; }
}
last_loss() { grep -o '"final":true.*' "$1.json" | grep -o '"loss":[^,]*' | cut -d: -f2; }

# ---- saved and resumed ----
mlp=$systems/mlp.dnn
printf 'mesh { pipe = 2 }\nplan { microbatches = 4\n cut after x[0] }\n' >two.plan
printf 'mesh { pipe = 3 }\nplan { microbatches = 2\n cut after x[0]\n cut after x[1] }\n' >three.plan
train whole "$mlp" --steps 20 --no-save
train two "$mlp" --steps 10 --plan two.plan
train three "$mlp" --steps 15 --plan three.plan --resume
train one "$mlp" --steps 20 --resume
close "$(last_loss whole)" "$(last_loss one)" 1e-6 ||
  fail "resumed under other stages: $(last_loss one), not $(last_loss whole)"

# ---- memory ----
# adamw stores three values a parameter.  A gradient is one more, and what the norm
# cannot change yet waits for the update: no decayed moment is stored beside it.
"$dnnc" simulate "$mlp" --plan two.plan --cluster "$root/models/h100x256.cluster" --json >out 2>err ||
  { cat err; fail "no price of stages"; }
grep -o '"persistent":[0-9]*,"step":[0-9]*' out | tr -c '0-9\n' ' ' | while read -r persistent step; do
  [ "$step" -lt $((persistent * 6 / 10)) ] || fail "a step stores $step bytes beside $persistent"
done || exit 1

# What `show` prints without a cluster: who holds what, the parts of each arena.
"$dnnc" show two.plan --model "$mlp" >out 2>err || { cat err; fail "two stages are not shown"; }
grep -q '^  1  *1  *992  *11904  linear\[1..2\]$' out && grep -q '^  0 -> 1 .* each micro-batch .x\[0\].$' out ||
  { cat out; fail "other stages are shown"; }
awk '/^rank/ { sum = 0 } /^  arena/ { arena = $2 } /^  (persistent|step|frames|messages|scratch) .* [a-z]/ { sum += $2 }
  /^values/ { if (sum != arena) exit 1; n++ } END { exit n != 2 }' out || { cat out; fail "parts that are no arena"; }
"$dnnc" show "$root/benchmarks/plans/pipe_gpt_loops.plan" --model "$systems/gpt.dnn" --json >out 2>err &&
  "$dnnc" simulate "$systems/gpt.dnn" --plan "$root/benchmarks/plans/pipe_gpt_loops.plan" --json \
    --cluster "$root/models/h100x256.cluster" >out 2>err || { cat err; fail "stages of one rank are not shown"; }

# ---- evaluation ----
# validation ARGUMENTS...: the loss over 20 samples, more than two batches.
validation() {
  train eval "$systems/resnet.dnn" group=4 ema=0.9 --steps 4 --no-save "$@"
  grep -o '"validation_loss":[^,]*' eval.json | tail -1 | cut -d: -f2
}
one=$(validation)
is=$(validation --plan "$root/benchmarks/plans/pipe_resnet_three.plan")
close "$one" "$is" 1e-5 || fail "validation of three stages: $is, not $one"

# ---- a model that samples ----
printf 'mesh { pipe = 2 }\nplan { microbatches = 2\n cut after block[0] }\n' >gpt.plan
mkdir -p data/inputs
yes 'to be or not to be' | head -c 40000 >data/inputs/tinyshakespeare.txt
chargpt="$root/models/chargpt.dnn B=4 T=8 C=16 L=2"
# shellcheck disable=SC2086 # a model and its sizes
{
  train text $chargpt ema=0.9 --plan gpt.plan --steps 2 -o text
}
# same_text MODEL PLAN OPTION...: one rank and the stages write the same tokens.
same_text() {
  local model=$1 plan=$2
  shift 2
  # shellcheck disable=SC2086 # a model and its sizes
  {
    "$dnnc" sample --quick $model "$@" --json --seed 3 --count 20 >one.json 2>err </dev/null ||
      { cat err; fail "no text of $*"; }
    "$dnnc" sample --quick $model "$@" --json --seed 3 --count 20 --plan "$plan" >many.json 2>err </dev/null ||
      { cat err; fail "no text of $* under $plan"; }
  }
  grep -q '"tokens":\[[0-9]' one.json &&
    [ "$(sed 's/,"tokens_per_s.*//' one.json)" = "$(sed 's/,"tokens_per_s.*//' many.json)" ] ||
    { cat one.json many.json; fail "$*: another text under $plan"; }
}
same_text "$chargpt" gpt.plan --load chargpt.ckpt
same_text "$chargpt" gpt.plan --load chargpt.ckpt --whole-windows ema=0.9
same_text "$chargpt" gpt.plan --load chargpt.ckpt ema=0.9 precision.compute=bf16
text/run --sample --json --seed 3 --count 20 >bundle.json 2>err </dev/null || { cat err; fail "no text of a bundle"; }
same_text "$chargpt" gpt.plan --load chargpt.ckpt ema=0.9
[ "$(grep -o '"tokens":[^]]*' bundle.json)" = "$(grep -o '"tokens":[^]]*' one.json)" ] ||
  fail "the bundle that has trained writes another text"

# Carries of a loop lie on the stage of the loop.
printf 'mesh { pipe = 2 }\nplan { microbatches = 2\n stage 0: lstm\n stage 1: linear }\n' >lstm.plan
yes 'anna' | head -c 4000 >data/inputs/names.txt
lstm="$root/models/charlstm.dnn B=8 T=8 E=4 C=8 eval_every=0"
# shellcheck disable=SC2086
train names $lstm --steps 2 --plan lstm.plan
same_text "$lstm" lstm.plan --load charlstm.ckpt

# ---- a value that is not finite ----
for plan in "$root/benchmarks/plans/pipe_mlp.plan" "$root/benchmarks/plans/pipe_mlp_naive.plan"; do
  "$dnnc" run --quick "$mlp" 'optimizer=sgd(lr=1e30)' clip=1e30 --plan "$plan" --no-save >out 2>err </dev/null
  grep -q "step 2: the loss is not finite; one value that is not is in 'linear\[1\].dot' (forward)" err ||
    { cat err; fail "$plan: another place of what is not finite"; }
done

# ---- verify ----
"$dnnc" verify "$mlp" --plan two.plan >words || { cat words; fail "verify"; }
grep -q ' in 2 stages with .*: equal to one rank' words && grep -q 'no stage waits for ever' words &&
  grep -q 'order of the [1-9][0-9]* messages between stages' words || { cat words; fail "verify in words"; }
"$dnnc" verify "$mlp" --plan two.plan --json >out.json || { cat out.json; fail "verify as JSON"; }
[ "$(field stages out.json)" = 2 ] && [ "$(field stage_messages out.json)" -gt 0 ] ||
  { cat out.json; fail "verify: stages"; }

# ---- not yet ----
refused() {
  "$dnnc" "$@" >out 2>err </dev/null
  [ $? = 1 ] && grep -q 'not supported yet' err || { cat err; fail "dnnc $*: not refused"; }
}
refused run "$mlp" --plan two.plan --profile p.csv
refused tune "$mlp" --plan two.plan -o tuned

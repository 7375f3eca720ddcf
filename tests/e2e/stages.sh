#!/bin/bash
# Other plans resume what stages save; evaluation reads the averages of all
# stages, also where a stage has no data; they write the text of one rank, and
# profiles.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/trained.bash"
export OMP_NUM_THREADS=1
systems=$root/benchmarks/systems

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

# Shards of the innermost dim, of which another stage has all, are many runs.
printf 'plan { shard C over tensor\n %s\n %s }\n' 'stage 0: wte, wpe, block[0] on 0..1 as (tensor = 2)' \
  'stage 1: block[1], norm on 2..4 as (data = 3)' >runs.plan
"$dnnc" show runs.plan --model "$root/models/gpt2.dnn" L=2 B=768 >out 2>&1 &&
  { cat out; fail "a message in very many runs is not refused"; }
grep -q "^runs.plan:2:2: error: not supported yet: the value 'block\[0\].add\[1\]' goes from stage 0 to stage 1 in more" out ||
  { cat out; fail "another message about very many runs"; }

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
# Ranks without keys and values have copies of weights, which prefill leaves alone.
printf 'mesh { pipe = 2 }\nplan { cut after block[1].attn }\n' >no_keys.plan
printf 'plan { place block[0..1].mlp on 1 }\n' >place.plan
same_text "$chargpt" no_keys.plan --load chargpt.ckpt
same_text "$chargpt" place.plan --load chargpt.ckpt
same_text "$chargpt" gpt.plan --load chargpt.ckpt ema=0.9 precision.compute=bf16
printf 'plan { microbatches = 2\n zero = 1\n %s\n %s }\n' \
  'stage 0: wte, wpe, block[0] on 0..1 as (data = 2)' 'stage 1: block[1], norm on 2' >unequal.plan
same_text "$chargpt" unequal.plan --load chargpt.ckpt
same_text "$chargpt" unequal.plan --load chargpt.ckpt --whole-windows
grep -q '{"first_rank": 1, "n_ranks": 1, "stages": \[1\], "persistent_bytes": [0-9]*, "arena_bytes": [0-9]*}\]}' text/bundle.json ||
  { cat text/bundle.json; fail "the bundle does not list its classes"; }
text/run --sample --json --seed 3 --count 20 >bundle.json 2>err </dev/null || { cat err; fail "no text of a bundle"; }
same_text "$chargpt" gpt.plan --load chargpt.ckpt ema=0.9
[ "$(grep -o '"tokens":[^]]*' bundle.json)" = "$(grep -o '"tokens":[^]]*' one.json)" ] ||
  fail "the bundle that has trained writes another text"

# An evaluation of a checkpoint reads averages too.
# shellcheck disable=SC2086
evaluated() { "$dnnc" eval --quick $chargpt ema=0.9 eval_batches=2 --load chargpt.ckpt --json "$@" 2>err </dev/null || cat err; }
evaluated >one.json
for plan in gpt unequal; do
  evaluated --plan $plan.plan >many.json
  close "$(field validation_loss one.json)" "$(field validation_loss many.json)" 1e-5 ||
    { cat one.json many.json; fail "an evaluation of averages under stages of $plan"; }
done

# Carries of a loop lie on the stage of the loop.
printf 'mesh { pipe = 2 }\nplan { microbatches = 2\n stage 0: lstm\n stage 1: linear }\n' >lstm.plan
yes 'anna' | head -c 4000 >data/inputs/names.txt
lstm="$root/models/charlstm.dnn B=8 T=8 E=4 C=8 eval_every=0"
# shellcheck disable=SC2086
train names $lstm --steps 2 --plan lstm.plan
same_text "$lstm" lstm.plan --load charlstm.ckpt

# An evaluation has no dropout; what a line names by its value is in that stage all the same.
cat >drop.dnn <<'END'
dim B = 8, P = 6, H = 5
layer linear[I -> O](x: [B, I]) -> [B, O] {
  param w: [I, O] = normal(0.5)
  return dot(x, w, I)
}
net drop(x: [B, P]) -> [B, H] {
  x = tanh(linear[P -> H](x))
  x = dropout(tanh(linear[H -> H](x)), 0.2)
  return linear[H -> H](x)
}
data d { x: [B, P] = synthetic(); y: [B, H] = synthetic(); eval = 16 }
train { loss = mse(drop(d.x), d.y); optimizer = sgd(lr = 0.1); steps = 2; eval_every = 1 }
END
printf 'plan { stage 0: x[1] on 0..1 as (data = 2)\n stage 1: linear[2] on 2..3 as (data = 2) }\n' >drop.plan
"$dnnc" verify drop.dnn --plan drop.plan --json >out 2>&1 || { cat out; fail "a stage of a dropout"; }
evaluations() { "$dnnc" run drop.dnn --quick --no-save --json "$@" 2>err </dev/null | grep -o '"validation_loss":[^,}]*'; }
evaluations >one.losses
evaluations --plan drop.plan >many.losses
[ "$(wc -l <one.losses)" = 3 ] && paste -d: one.losses many.losses | awk -F: '
  { d = $2 - $4; if (d < 0) d = -d; if (NF != 4 || !(d <= 1e-5 * $2)) bad = 1 }
  END { exit bad }' || { cat err; paste one.losses many.losses; fail "an evaluation without the dropout of a stage"; }

# ---- a value that is not finite ----
# not_finite WHERE ARGUMENTS...: the message names it.
not_finite() {
  local where=$1
  shift
  "$dnnc" run --quick "$@" --no-save >out 2>err </dev/null
  grep -qF "the loss is not finite; the first value that is not is in $where" err ||
    { cat err; fail "$*: another place of what is not finite"; }
}
for plan in pipe_mlp pipe_mlp_naive pipe_mlp_spread; do
  plan=$root/benchmarks/plans/$plan.plan size=B=16
  [ "${plan##*_}" != spread.plan ] || size=B=12
  not_finite "'linear[1].dot' (forward), stage 1, micro-batch 0" \
    "$mlp" $size 'optimizer=sgd(lr=1e30)' clip=1e30 --plan "$plan"
  not_finite "the update of 'linear[0].w' in step 1, stage 0" \
    "$mlp" $size 'optimizer=sgd(lr=1e39)' clip=1e30 --plan "$plan"
done
# One row of the fourth micro-batch alone; the mask before it does no harm.
cat >late.dnn <<'MODEL'
dim B = 8, C = 2
layer low(x: [B, C]) -> [B, C] {
  param w: [C] = ones
  return x * w
}
layer high(x: [B, C]) -> [B, C] {
  param v: [C] = ones
  return log(x * v + softmax(mask(x, C >= 1), C))
}
net f(x: [B, C]) -> [B, C] { return high(low(x)) }
data d { x: [B, C] = csv("late.csv", 0..1); order = sequential }
train { loss = mean(f(d.x)); optimizer = sgd(lr = 0.1); steps = 3 }
MODEL
printf '1,1\n2,1\n1,2\n3,1\n1,3\n1,1\n1,1\n-5,1\n' >late.csv
for case in '0 1f1b 0 1' '2 1f1b 0 1' '2 1f1b 1 0' '2 1f1b 0 0' '2 fthenb 0 1' '2 naive 0 1' '2 gpipe 1 0'; do
  read -r level schedule low high <<<"$case"
  printf 'plan {\n  schedule = %s\n  microbatches = 4\n  stage 0: low on %s\n  stage 1: high on %s\n}\n' \
    "$schedule" "$low" "$high" >late.plan
  not_finite "'high.log' (forward), stage 1, micro-batch 3" late.dnn -O"$level" --plan late.plan
done

# ---- a dynamic loss scale ----
# The gradient of one value alone is too large for f16, in one stage, and leads
# to none of the other: no stage changes anything until the scale has fallen.
scaled() { # NAME W W2 V
  cat >"$1.dnn" <<MODEL
dim B = 4, C = 2, I = 2, D = 2, F = 1, E = 1
layer low(x: [B, C]) -> [B, D] {
  param w: [C, I] = $2
  param w2: [I, D] = $3
  state seen: [] = 0
  seen = seen + 1
  return dot(dot(x, w, C), w2, I)
}
layer high(x: [B, D]) -> [B, E] {
  param v: [D, F] = $4
  param v2: [F, E] = ones
  state seen: [] = 0
  seen = seen + 1
  return dot(x, dot(v, v2, F), D)
}
net f(x: [B, C]) -> [B, E] { return high(low(x)) }
data d { x: [B, C] = csv("$1.csv", 0..1); y: [B, E] = csv("$1.csv", 2); order = sequential }
train { loss = mse(f(d.x), d.y); optimizer = adamw(lr = 0.001); steps = 16 }
precision { compute = f16; loss_scale = dynamic }
MODEL
  for i in 1 2 3 4; do echo "1,1,-1"; done >"$1.csv"
  printf 'mesh { pipe = 2 }\nplan { microbatches = 2\n cut after low }\n' >scaled.plan
  train one "$1.dnn" --no-save --microbatches 2
  train "$1" "$1.dnn" --no-save --plan scaled.plan
  local skipped
  skipped=$(grep -c '"skipped":true' "$1.json")
  [ "$skipped" -gt 2 ] && [ "$skipped" -lt 12 ] && [ "$skipped" = "$(grep -c '"skipped":true' one.json)" ] ||
    fail "$1: $skipped steps skipped"
  train first "$1.dnn" --plan scaled.plan --steps 1 --no-save
  train last "$1.dnn" --plan scaled.plan --steps "$skipped" --no-save
  train next "$1.dnn" --plan scaled.plan --steps $((skipped + 1)) --no-save
  [ -n "$(digest first)" ] && [ "$(digest first)" = "$(digest last)" ] || fail "$1: a skipped step changes something"
  [ "$(digest first)" != "$(digest next)" ] || fail "$1: no step is made"
}
scaled low 0.001 100 1
scaled high 1 1 0.001

# ---- verify ----
"$dnnc" verify "$mlp" --plan two.plan >words || { cat words; fail "verify"; }
grep -q ' in 2 stages with .*: equal to one rank' words && grep -q 'no stage waits for ever' words &&
  grep -q 'order of the [1-9][0-9]* messages between stages' words || { cat words; fail "verify in words"; }
"$dnnc" verify "$mlp" --plan two.plan --json >out.json || { cat out.json; fail "verify as JSON"; }
[ "$(field stages out.json)" = 2 ] && [ "$(field stage_messages out.json)" -gt 0 ] ||
  { cat out.json; fail "verify: stages"; }

# ---- paced ----
# Each class of ranks sleeps as long as its own launches take.
printf 'path,phase,kernel,cores,ps,runs\nnone,forward,0000000000000000,1,1,1\n' >formulas.profile
printf 'cluster slow {\n device = d\n level node { count = 2; link = 1GB/s }\n}\ndevice d { base = cpu; cores = 1; memory = 1GiB; flops_f32 = 10M }\n' >slow.cluster
train paced "$mlp" --plan two.plan --paced formulas.profile --cluster slow.cluster --steps 5 --no-save
[ "$(grep -c '"paced":true' paced.json)" = 6 ] || { cat paced.json; fail "a paced run of stages"; }
is=$(grep -o '"ms":[^,]*' paced.json | cut -d: -f2 | sort -n | sed -n 3p)
want=$("$dnnc" simulate "$mlp" --plan two.plan --cluster slow.cluster --json | grep -o '"step_s":[^,]*' | cut -d: -f2)
awk -v is="$is" -v want="$want" 'BEGIN { exit !(is >= 900 * want && is <= 2000 * want) }' ||
  fail "a paced step of stages takes $is ms, not $want s"

# ---- profiles and timelines ----
# Each stage has its lines, all launches of a step are measured, and a timeline names
# the stages.
tensor="$root/benchmarks/plans/pipe_gpt_tensor.plan"
printf 'device core { base = cpu; memory = 1GiB; cores = 1 }\ncluster four {\n device = core\n' >four.cluster
printf ' level node { count = 4; link = 1GB/s }\n}\n' >>four.cluster
train profiled "$systems/gpt.dnn" --plan "$tensor" --steps 4 --no-save --profile p.csv --transfers t.csv --trace trace.json
for path in 'block\[0\].mlp.dot\[0\]' 'block\[1\].mlp.dot\[0\]' 'optimizer.norm.g'; do
  grep -q "^$path," p.csv || { cat p.csv; fail "no launch of $path in a profile of stages"; }
done
cut -d, -f1-4 p.csv | sort | uniq -d | grep . && fail "a launch has two lines"
cut -d, -f1-4 t.csv | sort | uniq -d | grep . && fail "a transfer has two lines"
grep -q '^all_reduce,2x1,1536,1,[1-9]' t.csv && ! grep -q send t.csv || { cat t.csv; fail "transfers of stages"; }
grep -q '"name":"rank 3, stage 1"' trace.json || fail "the timeline names no stages"
"$dnnc" simulate "$systems/gpt.dnn" --plan "$tensor" --cluster four.cluster --profile p.csv >out 2>err ||
  { cat err; fail "no price from a profile of stages"; }
grep -q '^profile: \([0-9]*\) of \1 launches and 100.0 %' out || { cat out; fail "launches that were not measured"; }

# ---- a file to predict from ----
# Rank 0 reads x in two stages, rank 1 in none.
cat >twice.dnn <<'EOF'
dim B = 4, I = 6, K = 3
layer lin[I -> O](x: [B, I]) -> [B, O] {
  param w: [I, O] = normal(1)
  return dot(x, w, I)
}
net twice(x: [B, I]) -> [B, K] {
  t = lin[I -> I](x)
  a = exp(t)
  return lin[I -> K](a + x)
}
data d { x: [B, I] = synthetic(); y: i32[B] = synthetic(K) }
train { loss = cross_entropy(twice(d.x), d.y, K); optimizer = sgd(lr = 0.1); steps = 3 }
EOF
echo 'plan { place a on 1 }' >twice.plan
for i in 1 2 3 4 5 6 7 8 9; do echo "0.$i,0.2,-0.$i,0.1,0.3,-0.2"; done >x.csv
train twice.bundle twice.dnn -o twice.bundle >out 2>&1 || { cat out; fail "train twice.dnn"; }
for plan in '' '--plan twice.plan'; do
  # shellcheck disable=SC2086 # an option and its value
  "$dnnc" predict twice.dnn $plan --quick --load twice.ckpt --input x=x.csv -o "out$plan.csv" >out 2>&1 </dev/null ||
    { cat out; fail "predict from a file $plan"; }
done
cmp out.csv 'out--plan twice.plan.csv' || fail "stages predict other rows"
[ "$(wc -l <out.csv)" -ge 9 ] || { cat out.csv; fail "records are missing"; }

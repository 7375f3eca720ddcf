#!/bin/bash
# Several stages on a rank, by schedules of chunks and by lists of files: they
# end with the bits of stages on one rank, other plans resume what they save,
# they write the text of one rank, and a bundle holds its list.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/trained.bash"
export OMP_NUM_THREADS=1
systems=$root/benchmarks/systems plans=$root/benchmarks/plans

# ---- the bits of one rank ----
# Where a rank has stages 0 and 2, the norm's sum passes it twice.
# together PLAN: all stages on the first ranks, in the order of 1f1b.
together() {
  sed -E 's/^( *schedule *= ).*/\11f1b/; s/ on 2\.\.3$/ on 0..1/; s/ on 1$/ on 0/' "$1"
}
printf 'plan {\n  microbatches = 4\n  schedule = interleaved(v = 2)\n  stage 0: wte, wpe, block[0] on 1\n  stage 1: block[1] on 0\n' >gpt.plan
printf '  stage 2: block[2] on 1\n  stage 3: block[3], norm on 0\n}\n' >>gpt.plan
printf '0F0,0F1,0F2,0F3,2F0,2F1,2F2,2F3,2B0,2B1,2B2,2B3,0B0,0B1,0B2,0B3\n' >two.csv
printf '1F0,1F1,1F2,1F3,3F0,3B0,3F1,3B1,3F2,3B2,1B0,3F3,3B3,1B1,1B2,1B3\n' >>two.csv
sed 's/interleaved(v = 2)/"two.csv"/; s/on 1$/on 2/; s/on 0$/on 1/; s/on 2$/on 0/' gpt.plan >list.plan
sed 's/interleaved(v = 2)/bfs(v = 2)/' gpt.plan >bfs.plan
cp "$plans/pipe_mlp_bfs.plan" "$plans"/pipe_mlp_list.* .
for case in 'gpt gpt L=4' 'bfs gpt L=4 ema=0.9' 'list gpt L=4 clip=0.1' 'pipe_mlp_bfs mlp' 'pipe_mlp_list mlp'; do
  read -r plan model sizes <<<"$case"
  together $plan.plan >together.plan
  # shellcheck disable=SC2086 # sizes are words
  {
    train many "$systems/$model.dnn" $sizes --plan $plan.plan --steps 8 --no-save
    train one "$systems/$model.dnn" $sizes --plan together.plan --steps 8 --no-save
  }
  [ -n "$(digest one)" ] && [ "$(digest one)" = "$(digest many)" ] || fail "$case: other bits than on one rank"
done

# ---- saved and resumed ----
mlp=$systems/mlp.dnn
printf 'mesh { pipe = 2 }\nplan { microbatches = 4\n cut after x[0] }\n' >two.plan
train whole "$mlp" --steps 20 --no-save
train chunks "$mlp" --steps 6 --plan pipe_mlp_bfs.plan
train two "$mlp" --steps 11 --plan two.plan --resume
train list "$mlp" --steps 16 --plan pipe_mlp_list.plan --resume
train one "$mlp" --steps 20 --resume
close "$(last_loss whole)" "$(last_loss one)" 1e-6 ||
  fail "resumed under other stages: $(last_loss one), not $(last_loss whole)"

# ---- evaluation and text ----
mkdir -p data/inputs
yes 'to be or not to be' | head -c 40000 >data/inputs/tinyshakespeare.txt
chargpt="$root/models/chargpt.dnn B=4 T=8 C=16 L=4"
sed 's/microbatches = 4/microbatches = 2/' gpt.plan >text.plan
# shellcheck disable=SC2086
{
  train text $chargpt --plan text.plan --steps 2
  "$dnnc" sample --quick $chargpt --json --seed 3 --count 20 --load chargpt.ckpt >one.json 2>err </dev/null &&
    "$dnnc" sample --quick $chargpt --json --seed 3 --count 20 --load chargpt.ckpt --plan text.plan >many.json 2>err </dev/null ||
    { cat err; fail "no text"; }
  for plan in '' '--plan text.plan'; do
    "$dnnc" eval --quick $chargpt eval_batches=2 --load chargpt.ckpt --json $plan >"eval${plan:+_chunks}.json" 2>err </dev/null ||
      { cat err; fail "no evaluation"; }
  done
}
grep -q '"tokens":\[[0-9]' one.json && [ "$(sed 's/,"tokens_per_s.*//' one.json)" = "$(sed 's/,"tokens_per_s.*//' many.json)" ] ||
  { cat one.json many.json; fail "another text"; }
close "$(field validation_loss eval.json)" "$(field validation_loss eval_chunks.json)" 1e-5 || fail "another evaluation"

# Two stages of each rank read z, whose file has the last word of its path as its name.
cat >reads.dnn <<'MODEL'
dim B = 8, C = 4
layer low(x: [B, C]) -> [B, C] {
  param w: [C] = ones
  return x * w
}
net f(z: [B, C]) -> [B, C] {
  x = low(z) + z
  x = low(x) * z
  x = low(x) * z
  return low(x) + z
}
data d { z: [B, C] = synthetic(); y: i32[B] = synthetic(C); eval = 8 }
train { loss = cross_entropy(f(d.z), d.y, C); optimizer = sgd(lr = 0.1); steps = 3 }
MODEL
printf 'plan {\n  microbatches = 4\n  schedule = bfs(v = 2)\n' >reads.plan
for s in 0 1 2 3; do echo "  stage $s: low[$s], $(sed -n $((s + 1))p <<<$'add[0]\nmul[0]\nmul[1]\nadd[1]') on $((s % 2))"; done >>reads.plan
echo '}' >>reads.plan
printf '1,2,3,4\n5,6,7,8\n' >z.csv
train reads reads.dnn --plan reads.plan
for plan in '' '--plan reads.plan'; do
  # shellcheck disable=SC2086
  "$dnnc" predict reads.dnn --quick --load f.ckpt --input z=z.csv --output "read${plan:+_chunks}.csv" $plan >out 2>&1 ||
    { cat out; fail "no prediction $plan"; }
done
cmp read.csv read_chunks.csv || fail "another prediction"

# ---- shown and priced ----
"$dnnc" show gpt.plan --model "$systems/gpt.dnn" L=4 >out 2>err || { cat err; fail "chunks are not shown"; }
grep -q '^  2  *1  *[1-9].*block\[2\]$' out && grep -q '^rank 1, stages 0 and 2: ' out || { cat out; fail "other stages are shown"; }
for plan in gpt list; do
  "$dnnc" simulate "$systems/gpt.dnn" L=4 --plan $plan.plan --cluster "$root/models/h100x256.cluster" --json >out 2>err ||
    { cat err; fail "no price of $plan"; }
done

# With F = I = W = 0.2 s, two products each, and links that cost next to nothing, the
# ranks wait (p - 1) 3 F, half of that with two stages a rank, and a third with zbh1.
cat >chain.dnn <<'MODEL'
dim B = 64, C = 32
layer linear(x: [B, C]) -> [B, C] {
  param w: [C, D:32] = normal(0.2)
  return dot(x, w, C)[D -> C]
}
net chain(x: [B, C]) -> [B, C] {
  param g: [C] = ones
  x = x * g
  repeat i in 8 { x = linear(x) }
  return x
}
data d { x: [B, C] = synthetic(); y: [B, C] = synthetic() }
train { loss = mse(chain(d.x), d.y); optimizer = sgd(lr = 0.01); steps = 2 }
MODEL
printf 'cluster free {\n device = d\n level node { count = 4; link = 1000000GB/s; latency = 0us }\n}\n' >free.cluster
printf 'device d { base = cpu; cores = 1; memory = 1GiB }\n' >>free.cluster
# waits SCHEDULE STAGES [NAME=VALUE]: of rank 0, in F.
waits() {
  { printf 'mesh { pipe = 4 }\nplan {\n  schedule = %s\n  microbatches = 8\n' "$1"
    for s in $(seq $((8 / $2 - 1)) $((8 / $2)) 6); do echo "  cut after linear[$s]"; done
    echo '}'; } >chain.plan
  train chain chain.dnn ${3:+"$3"} --plan chain.plan --no-save --profile chain.csv
  awk -F, -v OFS=, 'NR > 1 { $5 = $1 ~ /linear.*dot/ ? "100000000000" : 1 } { print }' chain.csv >chain.profile
  "$dnnc" simulate chain.dnn ${3:+"$3"} --plan chain.plan --cluster free.cluster --profile chain.profile >out 2>err ||
    { cat err; fail "no price of $1"; }
  sed -n 's/^rank 0, .* wait \([0-9.]*\) ms.*/\1/p' out | awk '{ print $1 / 200 }'
}
for case in '1f1b:4:9' 'interleaved(v = 2):8:4.5' 'bfs(v = 2):8:4.5' 'zbh1:4:3'; do
  IFS=: read -r schedule stages want <<<"$case"
  is=$(waits "$schedule" "$stages")
  close "$is" "$want" 0.005 || fail "rank 0 waits $is F under $schedule, not $want"
done
# Where updates are early no rank waits once steps follow each other; with clip all wait
# for the last rank.
for case in 'zbh2:4' 'zbv:8'; do
  IFS=: read -r schedule stages <<<"$case"
  is=$(waits "$schedule" "$stages")
  awk "BEGIN { exit !($is >= 0 && $is < 0.01) }" || fail "rank 0 waits $is F under $schedule"
done
is=$(waits zbh2 4 clip=1)
awk "BEGIN { exit !($is > 2.99) }" || fail "rank 0 waits $is F under zbh2 with clip"

# MPI takes a message of any size before its receiver comes, and copies it, so ranks whose
# forward passes come first wait for one message of 50 ms in either direction.
printf 'mesh { pipe = 2 }\nplan {\n  schedule = fthenb\n  microbatches = 4\n  cut after linear[3]\n}\n' >thin.plan
printf 'device d { base = cpu; cores = 1; memory = 1GiB }\n' >device
for case in 64:0.04096MB 65536:41.94304MB; do
  { printf 'cluster thin {\n device = d\n level node { count = 1; link = 8GB/s; latency = 0us }\n'
    printf ' level network { count = 2; link = %s/s; latency = 0us }\n}\n' "${case#*:}"
    cat device; } >thin.cluster
  train chain chain.dnn B="${case%:*}" --plan thin.plan --no-save --profile chain.csv
  awk -F, -v OFS=, 'NR > 1 { $5 = $1 ~ /linear.*dot/ ? "50000000000" : 1 } { print }' chain.csv >chain.profile
  "$dnnc" simulate chain.dnn B="${case%:*}" --plan thin.plan --cluster thin.cluster --profile chain.profile --json >out 2>err ||
    { cat err; fail "no price of messages"; }
  is=$(grep -o '"step_s":[0-9.e+-]*' out | head -n 1 | cut -d: -f2)
  close "$is" 3.1 0.02 || fail "a step with messages of ${case%:*} samples takes $is s, not 3.1"
done

# The gradient of sqrt(v) at 0 is infinite, in the first stage alone.  The run says so
# before it evaluates or saves the step; others are printed and saved.
sed 's/x = x \* g/x = x + sqrt(g)/' chain.dnn >root.dnn
sed 's/= ones/= zeros/' root.dnn >infinite.dnn
printf 'mesh { pipe = 2 }\nplan {\n  schedule = zbh2\n  microbatches = 4\n  cut after linear[3]\n}\n' >early.plan
"$dnnc" run root.dnn --plan early.plan steps=5 save_every=2 'save="early"' --json >out 2>err || { cat err; fail "no early update"; }
[ "$(sed -n 's/^{"step":\([0-9]*\),.*/\1/p' out | xargs)" = "1 2 3 4 5" ] && [ -d early/step-00000004 ] || { cat out; fail "steps of early updates"; }
"$dnnc" run infinite.dnn --plan early.plan save_every=1 'save="never"' >out 2>err && fail "an infinite gradient does not end the run"
grep -qx 'error: step 1: the gradient norm is not finite in stage 0' err && ! grep -q '^step' out && [ ! -e never/latest ] ||
  { cat out err; fail "an infinite gradient of one stage"; }

# ---- a bundle holds its list ----
graph() { "$dnnc" ir "$systems/gpt.dnn" L=4 --plan "$1" --after=partition || fail "ir $1"; }
build() { "$dnnc" build --quick "$systems/gpt.dnn" L=4 --plan "$1" -o "$2" >out 2>&1 || { cat out; fail "build $1"; }; }
mkdir away
build list.plan away/b1
build away/b1/plan.plan b2
cmp away/b1/plan.plan b2/plan.plan && cmp away/b1/schedule.csv b2/schedule.csv && cmp away/b1/rank-0000 b2/rank-0000 ||
  fail "the plan of a bundle makes another one"
cmp <(graph list.plan) <(graph away/b1/plan.plan) || fail "the plan of a bundle is another"
sed 's/1B0,3F3,3B3/3F3,3B3,1B0/' two.csv >other.csv && mv other.csv two.csv
build list.plan b3
cmp -s away/b1/plan.plan b3/plan.plan && fail "the plan does not depend on what is in the list"
away/b1/run --steps 2 --no-save >out 2>&1 || { cat out; fail "the bundle does not run"; }
exit 0

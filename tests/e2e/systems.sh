#!/bin/bash
# Plans that shard parameters train as one rank does: the short half of
# benchmarks/systems, and a checkpoint that goes from plan to plan.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$root/benchmarks/systems/run.sh" "$dnnc" short || fail "losses differ"

plans=$root/benchmarks/plans
sed -e 's/synthetic(V) }/synthetic(V); eval = 13 }/' \
    -e 's/steps      = 20/steps = 8\n  eval_every = 4\n  save_every = 4\n  ema = 0.9/' \
    "$root/benchmarks/systems/gpt.dnn" >gpt.dnn

# Evaluation with its remainder, averages and the last losses are those of one
# rank; the checkpoint has the same parameters under every plan that loads it.
"$dnnc" run gpt.dnn --json --no-save >one.json || fail "one rank"
"$dnnc" run gpt.dnn --json --plan "$plans/vocabulary.plan" >tensor.json ||
  fail "vocabulary.plan"
for key in loss norm validation_loss; do
  close "$(field $key one.json)" "$(field $key tensor.json)" 1e-5 ||
    fail "$key: $(field $key one.json) and $(field $key tensor.json)"
done
hash() { grep -o '"parameters_sha256":\["[0-9a-f]*' "$1" | cut -d'"' -f4; }
saved=$(hash tensor.json)
[ -n "$saved" ] || fail "no hash"
for plan in zero3 tensor_zero3; do
  "$dnnc" run gpt.dnn --json --resume --plan "$plans/$plan.plan" >again.json ||
    fail "resume under $plan.plan"
  [ "$(hash again.json)" = "$saved" ] || fail "$plan.plan: other parameters"
done
"$dnnc" run gpt.dnn --json --resume >again.json || fail "resume on one rank"
[ "$(hash again.json)" = "$saved" ] || fail "one rank: other parameters"
echo "the checkpoint of four ranks is the same on one rank and under ZeRO 3"

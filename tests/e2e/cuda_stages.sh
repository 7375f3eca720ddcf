#!/bin/bash
# Stages on the mock GPU: they evaluate, predict, save, resume and write text as one
# rank on the CPU does; no wait between a message and the kernels around it can be
# left out unnoticed; a failure in one stage ends all ranks and is named.
. "$(dirname "$0")/lib.sh"
. "$root/tests/mock/lib.sh"
has_mpi || skip "needs mpirun"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mock_ready
mock_seconds=60
model="$root/models/mlp.dnn"
settings="--data $root eval_every=3 eval_batches=3 H1=32 H2=16"
printf 'mesh { pipe = 3 }\nplan { schedule = 1f1b\n microbatches = 4\n cut after x[0]\n cut after x[1] }\n' >three.plan
# shellcheck disable=SC2086 # words
mock_build_file three "$model" $settings --plan three.plan --target $mock_target || {
  grep -q NVRTC three.log && skip "no NVRTC ($(tail -n 1 three.log))"
  cat three.log
  fail "a build"
}
# on_cpu NAME OPTIONS...
on_cpu() {
  local name=$1
  shift
  # shellcheck disable=SC2086
  "$dnnc" run --quick "$model" $settings --json "$@" >"$name.json" 2>"$name.err" </dev/null ||
    { cat "$name.err"; fail "$name on the CPU"; }
}
# on_mock NAME OPTIONS...: without --no-save, which mock_run has
on_mock() {
  local name=$1
  shift
  DNN_MOCK_KERNELS=$(echo "$work"/three/source/*.so | tr ' ' ':') timeout $mock_seconds "$work/three/run" \
    --data "$root" --json "$@" >"$name.json" 2>"$name.err" </dev/null && ! grep 'mock:' "$name.err" ||
    { cat "$name.err"; fail "$name on the mock"; }
}
# same FILE FILE: losses, norms and validation losses in lines within 1e-5.
numbers() { grep -v '"final"' "$1.json" | grep -o '"\(loss\|norm\|validation_loss\|accuracy\)":[0-9][^,}]*' | cut -d: -f2; }
same() {
  [ "$(numbers "$1" | wc -l)" -ge "$3" ] && paste -d ' ' <(numbers "$1") <(numbers "$2") | awk '
    { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || !(d <= 1e-5 * $2)) bad = 1 }
    END { exit bad }' || { paste <(numbers "$1") <(numbers "$2"); fail "$1 differs from $2"; }
}

# ---- training and evaluation ----
on_cpu whole --steps 6 --no-save
for eager in 0 1; do
  DNN_MOCK_EAGER=$eager on_mock late-$eager --steps 6 --no-save
  same late-$eager whole 16
done

# ---- schedules ----
# trains MESH SETTINGS [NAME=VALUE]: the lines of a plan of two stages, on the mock as on
# one rank; without a mesh the settings have the stages.
systems=$root/benchmarks/systems/mlp.dnn
"$dnnc" run --quick "$systems" --steps 4 --no-save --json >one.json 2>err || { cat err; fail "one rank"; }
trains() {
  printf 'mesh { %s }\nplan { %s\n cut after x[0] }\n' "$1" "$2" >scheduled.plan
  [ -n "$1" ] || printf 'plan { %s }\n' "$2" >scheduled.plan
  # shellcheck disable=SC2086
  mock_build_file scheduled "$systems" ${3:-} --plan scheduled.plan --target $mock_target ||
    { cat scheduled.log; fail "a build of $2"; }
  mock_run scheduled --steps 4 --json >scheduled.json 2>err && ! grep 'mock:' err || { cat err; fail "$2"; }
  same scheduled one 8
  rm -r scheduled
}
trains 'pipe = 2' 'schedule = naive'
trains 'pipe = 2; data = 2' 'schedule = fthenb; microbatches = 2; zero = 2'
trains 'pipe = 2' 'schedule = gpipe; microbatches = 4'
trains '' 'microbatches = 2; stage 0: linear[0], x[0] on 0 as (); stage 1: linear[1..2] on 1..2 as (data = 2)'
# Each stage updates its parameters early.
"$dnnc" run --quick "$systems" clip=0 --steps 4 --no-save --json >one.json 2>err || { cat err; fail "one rank"; }
trains 'pipe = 2' 'schedule = zbh2; microbatches = 4' clip=0

# ---- what stages save, one rank resumes, and the other way ----
mkdir saved && cd saved || exit 1
on_mock first --steps 3
on_cpu rest --steps 6 --resume
grep '"step":[456],\|"step":6,"val' ../whole.json >whole.json
same rest whole 8
cd .. && mkdir loaded && cd loaded || exit 1
on_cpu first --steps 3
on_mock rest --steps 6 --resume
cp ../saved/whole.json .
same rest whole 8

# ---- evaluation and prediction of a checkpoint ----
on_mock eval --eval --load mlp.ckpt
# shellcheck disable=SC2086
"$dnnc" eval --quick "$model" $settings --load mlp.ckpt --json >cpu.json 2>err || { cat err; fail "eval"; }
same eval cpu 2
on_mock rows --predict --load mlp.ckpt --output rows.csv
# shellcheck disable=SC2086
"$dnnc" predict --quick "$model" $settings --load mlp.ckpt --quiet -o rows.cpu.csv 2>err || { cat err; fail "predict"; }
paste -d, rows.csv rows.cpu.csv | awk -F, '{ for (i = 1; i <= 10; i++) {
    d = $i - $(i + 10); m = $i < 0 ? -$i : $i
    if (d > 1e-5 * (m + 1) || -d > 1e-5 * (m + 1)) bad = 1 } }
  END { exit bad || NR != 1000 || NF != 20 }' || fail "rows of a prediction differ"
cd ..

# ---- text ----
printf 'mesh { pipe = 2 }\nplan { microbatches = 2\n cut after block[0] }\n' >gpt.plan
mkdir -p data/inputs
yes 'to be or not to be' | head -c 4000 >data/inputs/tinyshakespeare.txt
chargpt="$root/models/chargpt.dnn B=4 T=8 C=16 L=2 eval_every=0"
# shellcheck disable=SC2086 # a model and its sizes
{
  "$dnnc" run --quick $chargpt --steps 1 --quiet 2>err </dev/null || { cat err; fail "a checkpoint of text"; }
  "$dnnc" sample --quick $chargpt --load chargpt.ckpt --seed 3 --count 12 --json >one.json 2>err </dev/null ||
    { cat err; fail "text of one rank"; }
  mock_build_file text $chargpt --plan gpt.plan --target $mock_target || { cat text.log; fail "a build of text"; }
}
mock_run text --sample --load chargpt.ckpt --seed 3 --count 12 --json >many.json 2>err && ! grep 'mock:' err ||
  { cat err; fail "text on the mock"; }
tokens() { grep -o '"tokens":\[[^]]*' "$1"; }
[ -n "$(tokens one.json)" ] && [ "$(tokens one.json)" = "$(tokens many.json)" ] ||
  { cat one.json many.json; fail "other text"; }

# ---- missing waits ----
# steps EAGER: losses and norms of two steps.
steps() {
  DNN_MOCK_EAGER=$1 mock_run three --steps 2 --json 2>&1 |
    grep -o '"loss":[^,]*,"norm":[^,]*\|^error.*'
}
expected=$(steps 1)
[ "$(echo "$expected" | grep -c norm)" = 2 ] || fail "two steps: $expected"
notices() { # wait
  local eager
  for eager in 0 1; do
    [ "$(DNN_MOCK_DROP_WAIT=$1 steps $eager)" = "$expected" ] || return 0
  done
  return 1
}
for wait in 3 5 7 9 10; do
  notices $wait || fail "nobody notices that wait $wait is missing"
done

# ---- failures ----
# ends FAILURE TEXT: with exit code 3, in time, and the texts are on stderr.
ends() {
  DNN_MOCK_FAIL=$1 mock_run three --steps 4 --quiet >out 2>err
  local code=$?
  [ $code = 3 ] || { cat err; fail "$1: exit code $code"; }
  for text in "${@:2}"; do grep -q "$text" err || { cat err; fail "$1: no '$text'"; }; done
  ! grep 'mock:' err || fail "$1"
  [ -z "$(pgrep -f "$work/three/rank-")" ] || fail "$1: ranks are left"
}
ends cuLaunchKernel:20:700@2 "cuLaunchKernel failed at '.*ILLEGAL_ADDRESS" 'rank 2 (stage 2) is at step 1, .* in micro-batch'
ends ncclSend:7:3@1 'NCCL failed in a collective' 'rank 1 (stage 1) is at step 1, '
ends ncclCommInitRankConfig:2:2@1 'NCCL failed in ncclCommInitRankConfig'
echo "three stages on the mock GPU: losses, evaluation, checkpoints and text of one rank, 5 missing waits noticed"

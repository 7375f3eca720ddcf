#!/bin/bash
# Complete training steps of CUDA bundles run on a mock GPU (tests/mock): losses
# equal those of the CPU, on one rank and on two; streams wait for each other; a
# failing call is named and ends with exit code 3; no file is left.
. "$(dirname "$0")/lib.sh"
. "$root/tests/mock/lib.sh"
mock_ready
toolkit=${CUDA_HOME:-/usr/local/cuda}/include
if [ -e "$toolkit/cuda.h" ]; then
  cc -std=gnu11 -fsyntax-only -I"$root" -I"$toolkit" \
    "$root/tests/device/api_check.c" || fail "api.def is not the toolkit's API"
else
  echo "skipped: no CUDA headers to compare runtime/cuda/api.def with"
fi
settings="eval_every=0 eval_batches=1"

losses() { grep '"step"' "$1" | grep -o '"loss":[^,}]*' | cut -d: -f2; }
same_losses() { # a b what
  [ -s "$1" ] && [ "$(losses "$1" | wc -l)" -gt 0 ] || fail "$3: no losses"
  paste -d' ' <(losses "$1") <(losses "$2") | awk '
    { d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= 1e-5)) bad = 1 }
    END { exit bad }' || {
    paste <(losses "$1") <(losses "$2")
    fail "$3: losses differ"
  }
}
on_cpu() { # name model steps options...
  local name=$1 model=$2 steps=$3
  shift 3
  # shellcheck disable=SC2086
  "$dnnc" run "$root/models/$model.dnn" --steps "$steps" --json --no-save \
    --data "$root" $settings "$@" >"$name.cpu" 2>"$name.err" ||
    { cat "$name.err"; fail "$name on the CPU"; }
}
on_mock() { # name steps
  mock_run "$1" --steps "$2" --json >"$1.json" 2>"$1.err" ||
    { cat "$1.err"; fail "$1 on the mock"; }
  grep 'mock:' "$1.err" && fail "$1"
  same_losses "$1.json" "$1.cpu" "$1"
}

for case in mlp:4 lenet:1 charmoe:2:batch=4 chargpt:2:batch=4 charlstm:2:C=16; do
  IFS=: read -r model steps option <<<"$case"
  on_cpu "$model" "$model" "$steps" ${option:+"$option"}
  [ "$model" = mlp ] && target=cuda:sm_90 || target=$mock_target
  # shellcheck disable=SC2086
  mock_target=$target mock_build "$model" "$model" $settings ${option:+"$option"}
  on_mock "$model" "$steps"
done

# --quick leaves it to the driver to compile for a GPU.
grep -q sm_90 mlp/rank-0000 && grep -q compute_80 lenet/rank-0000 && ! grep -q sm_90 lenet/rank-0000 ||
  fail "--quick and architectures"

# The batch of a step is read while the GPU computes the one before.  A value
# that is wrong ends the run at its step all the same.
cat >bytes.dnn <<'MODEL'
dim B = 1, T = 2
net f(x: i8[B, T]) -> [] {
  param w: [] = ones
  return w * sum(x, (B, T))
}
data d {
  x: i8[B, T] = bytes("text")
  order = sequential
}
train {
  loss      = f(d.x)
  optimizer = sgd(lr = 0)
  steps     = 6
}
MODEL
printf '\1\2\3\4\5\6\7\10\11\12\13\14' >text
# shellcheck disable=SC2086
mock_build_file bytes bytes.dnn --target $mock_target || { cat bytes.log; fail "a build of bytes"; }
ends_after() { # losses
  mock_run bytes --json >bytes.json 2>bytes.err
  [ "$(losses bytes.json | tr '\n' ' ')" = "$1" ] || { cat bytes.json bytes.err; fail "losses are not '$1'"; }
}
ends_after "3 7 11 15 19 23 "
printf '\1\2\3\4\5\377\7\10\11\12\13\14' >text
ends_after "3 7 "
grep -q "^error: 'text', value 5: 'd.x' is i8, not 255" bytes.err || { cat bytes.err; fail "a wrong value"; }

# A kernel that knows its place in the batch finds it in each micro-batch.
cp "$root/tests/e2e/dropout.dnn" .
"$dnnc" run dropout.dnn --json --no-save >dropout.cpu 2>dropout.err ||
  { cat dropout.err; fail "dropout on the CPU"; }
# shellcheck disable=SC2086
mock_build_file dropout dropout.dnn --target $mock_target --microbatches 4 ||
  { cat dropout.log; fail "a build of dropout"; }
on_mock dropout 5

# A prediction: the rows of the CPU.
"$dnnc" run "$root/models/mlp.dnn" --steps 2 --data "$root" $settings --quiet ||
  fail "a checkpoint to predict from"
"$dnnc" predict "$root/models/mlp.dnn" --load mlp.ckpt --data "$root" --quiet \
  -o rows.cpu.csv || fail "a prediction on the CPU"
mock_run mlp --predict --load mlp.ckpt --output rows.csv --quiet ||
  fail "a prediction on the mock"
paste -d, rows.csv rows.cpu.csv | awk -F, '{ for (i = 1; i <= 10; i++) {
    d = $i - $(i + 10); m = $i < 0 ? -$i : $i
    if (d > 1e-5 * (m + 1) || -d > 1e-5 * (m + 1)) bad = 1 } }
  END { exit bad || NR != 1000 }' || fail "rows of a prediction differ"

# Blocks and warps in another order: the same bits.
cp mlp.json ascending.json
DNN_MOCK_SEED=77 mock_run mlp --steps 4 --json >shuffled.json ||
  fail "mlp in another order"
[ "$(losses ascending.json)" = "$(losses shuffled.json)" ] ||
  fail "the order of blocks changes results"

refuses() { # what text bundle; environment before it
  local out
  out=$(mock_run "$3" --steps 2 2>&1)
  local code=$?
  [ $code = 3 ] || { echo "$out"; fail "$1: exit code $code"; }
  echo "$out" | grep -q "$2" || { echo "$out"; fail "$1: wrong message"; }
}
DNN_MOCK_FAIL=cuLaunchKernel:30:700 refuses "a kernel that fails" \
  "cuLaunchKernel failed at '.*ILLEGAL_ADDRESS" mlp
DNN_MOCK_FAIL=cublasLtMatmul:3:14 refuses "a product that fails" \
  "cuBLASLt failed with status 14 for '" mlp
DNN_MOCK_FAIL=cuStreamSynchronize:4 refuses "a failure found later" \
  "LAUNCH_FAILED" mlp
DNN_MOCK_CAPACITY=1e6 refuses "too little memory" \
  "of its 1.0 MB free" mlp
DNN_MOCK_SM=75 refuses "an old GPU" "no kernels for this GPU" mlp
# The bundle for sm_90 has PTX of sm_90, for GPUs that are newer.
DNN_MOCK_SM=80 refuses "a GPU older than the PTX" "build with --target cuda:sm_80" mlp
DNN_MOCK_SM=100 mock_run mlp --steps 2 --quiet || fail "a GPU newer than all cubins"
DNN_MOCK_DEVICES=0 refuses "no GPU" "needs a GPU of its own" mlp
DNN_CUDA_LIB=/nonexistent refuses "no driver" "NVIDIA's driver" mlp
DNN_CUBLASLT_LIB=/nonexistent refuses "no cuBLASLt" "install cuBLAS" mlp

has_mpi || { echo "skipped: two ranks need mpirun"; exit 0; }
for case in mlp:4 chargpt:2:batch=4; do
  IFS=: read -r model steps option <<<"$case"
  # shellcheck disable=SC2086
  mock_build "$model-2" "$model" --ranks 2 $settings ${option:+"$option"}
  cp "$model.cpu" "$model-2.cpu"
  on_mock "$model-2" "$steps"
done
# A profile by events of the device, whose multiprocessors are the cores, and a
# run paced by it.
mock_run mlp-2 --steps 3 --quiet --profile mlp.profile --transfers mlp.transfers ||
  fail "a profile of two GPUs"
awk -F, 'NR > 1 && !($4 == 132 && $5 > 0) { bad = 1 } END { exit bad || NR < 20 }' mlp.profile &&
  grep -q '^all_reduce,2x1,' mlp.transfers ||
  { cat mlp.profile mlp.transfers; fail "lines of a profile of two GPUs"; }
# shellcheck disable=SC2086
DNN_MOCK_KERNELS=$(echo mlp-2/source/*.so | tr ' ' ':') "$dnnc" run "$root/models/mlp.dnn" \
  --target cuda:sm_90 --ranks 2 $settings --data "$root" --paced mlp.profile --steps 3 \
  --json >paced.json 2>paced.err || { cat paced.err; fail "a paced run of two GPUs"; }
[ "$(grep -c '"paced":true' paced.json)" = 4 ] || fail "a paced run of two GPUs"
# Gradients in 16 bits, which are added in f32 and rounded once, as over MPI.
# shellcheck disable=SC2086
mock_build mlp16-2 mlp --ranks 2 $settings precision.grads=bf16
on_cpu mlp16-2 mlp 4 --ranks 2 precision.grads=bf16
on_mock mlp16-2 4
# Loops of loops, and sums over ranks in a loop.
for model in nested across; do
  # shellcheck disable=SC2086
  mock_build "$model-2" "../tests/scans/$model" --ranks 2 B=4 $settings
  on_cpu "$model-2" "../tests/scans/$model" 3 B=4
  on_mock "$model-2" 3
done
# Collectives as late as their readers allow (above), and as soon as they may.
DNN_MOCK_EAGER=1 on_mock mlp-2 4
DNN_NCCL_LIB=/nonexistent refuses "no NCCL" "several GPUs need NCCL" mlp-2
DNN_MOCK_FAIL=ncclAllReduce:3:3 refuses "a collective that fails" \
  "NCCL failed in a collective" mlp-2
echo "CUDA bundles on the mock GPU: 10 trained, 10 failures named"

#!/bin/bash
# Bundles of plans on the mock GPU: they train as one rank on the CPU does, with
# several stages too; a failure on one rank ends all ranks within seconds, names
# what failed, no wait between streams can be left out unnoticed, and a value that
# is not finite is traced to the operator that the CPU names.
. "$(dirname "$0")/lib.sh"
. "$root/tests/mock/lib.sh"
has_mpi || skip "needs mpirun"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mock_ready
mock_build_file plan "$root/benchmarks/systems/gpt.dnn" \
  --plan "$root/benchmarks/plans/context_tensor.plan" --target cuda:sm_90 || {
  grep -q NVRTC plan.log && skip "no NVRTC ($(tail -n 1 plan.log))"
  cat plan.log
  fail "a build"
}
"$root/benchmarks/systems/run.sh" "$dnnc" mock-short || fail "a pair differs"

mock_seconds=60
# ends FAILURE TEXT: with exit code 3, in time, and the text is on stderr.
ends() {
  DNN_MOCK_FAIL=$1 mock_run plan --steps 4 --quiet >out 2>err
  local code=$?
  [ $code = 3 ] || { cat err; fail "$1: exit code $code"; }
  grep -q "^error: .*$2" err || { cat err; fail "$1: no '$2'"; }
  ! grep 'mock:' err || fail "$1"
  [ -z "$(pgrep -f "$work/plan/rank-")" ] || fail "$1: ranks are left"
}
ends cuMemAlloc_v2:1:2@1 'needs 0.1 MB on the GPU'
grep -q '(rank 1)' err || fail "which rank has too little memory"
ends ncclCommInitRankConfig:2:2@2 'NCCL failed in ncclCommInitRankConfig'
ends asyncError:40:6@1 'NCCL failed in a collective'
ends cuLaunchKernel:50:700@3 "cuLaunchKernel failed at '.*ILLEGAL_ADDRESS"
ends cuStreamWaitEvent:4:719@0 "cuStreamWaitEvent failed at 'a collective'"

# steps EAGER: losses and norms of two steps.
steps() {
  DNN_MOCK_EAGER=$1 mock_run plan --steps 2 --json 2>&1 |
    grep -o '"loss":[^,]*,"norm":[^,]*\|^error.*'
}
expected=$(steps 1)
[ "$(echo "$expected" | grep -c norm)" = 2 ] || fail "two steps: $expected"
for eager in 0 1; do
  [ "$(steps $eager)" = "$expected" ] || fail "two runs differ"
done
# A collective that does not wait for the kernels reads too early where its stream
# runs ahead, a kernel that does not wait for a collective where it runs late.
for wait in 1 2 3 4 5 6 7 8; do
  [ "$(DNN_MOCK_DROP_WAIT=$wait steps $((wait % 2)))" != "$expected" ] ||
    fail "nobody notices that wait $wait is missing"
done

# not_finite COMMAND...: the line that names the operator.
not_finite() {
  "$@" --steps 4 --quiet >out 2>err </dev/null
  [ $? = 1 ] && ! grep 'mock:' err >&2 || { cat err >&2; return 1; }
  grep '^error: .*the first value that is not is in' err
}
sequence="--plan $root/benchmarks/plans/sequence.plan optimizer=sgd(lr=1e30)"
# shellcheck disable=SC2086 # words
named=$(not_finite "$dnnc" run "$root/benchmarks/systems/gpt.dnn" $sequence --no-save) ||
  fail "not finite on the CPU"
# shellcheck disable=SC2086
mock_has_plain=yes mock_build_file infinite "$root/benchmarks/systems/gpt.dnn" --target $mock_target $sequence ||
  fail "a build with a large rate"
for eager in 0 1; do
  found=$(DNN_MOCK_EAGER=$eager not_finite mock_run infinite) || fail "not finite on the mock"
  [ "$found" = "$named" ] || { echo "$found"; fail "not '$named'"; }
done
echo "plans on the mock GPU: 5 failures end all ranks, 8 of 8 missing waits are noticed"

#!/bin/bash
# Every kind of collective over NCCL, on the mock GPU.
. "$(dirname "$0")/lib.sh"
. "$root/tests/mock/lib.sh"
has_mpi || skip "no mpirun"
mock_ready
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -o "$work/collectives" \
  "$root/tests/e2e/collectives_nccl.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -fopenmp -lm -ldl -lpthread || fail "cannot compile the test"
for ranks in 4 5; do
  timeout 120 mpirun --allow-run-as-root --oversubscribe -n $ranks \
    "$work/collectives" >out 2>err || { cat err; fail "$ranks ranks"; }
  [ "$(grep -c "holds on $ranks ranks over nccl" out)" = $ranks ] ||
    { cat out err; fail "$ranks ranks"; }
  ! grep 'mock:' err || fail "$ranks ranks"
done
for function in ncclAllGather ncclReduceScatter ncclBroadcast ncclSend ncclRecv; do
  DNN_MOCK_FAIL=$function:3:3 timeout 60 mpirun --allow-run-as-root \
    --oversubscribe -n 2 "$work/collectives" >out 2>err
  [ $? != 0 ] && grep -q 'NCCL failed in a collective: failure of the mock' err ||
    { cat out err; fail "$function that fails"; }
done

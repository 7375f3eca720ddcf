#!/bin/bash
# Every kind of collective over MPI, in whole messages and in small pieces; ranks
# that start a queue in different orders are told so; a scalar passes bulk
# transfers; collectives of more than 2 GiB.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "no mpirun"
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -o "$work/collectives" \
  "$root/tests/e2e/collectives.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -fopenmp -lm -ldl -lpthread || fail "cannot compile the test"
for case in 2 3 4 5 6 8 3:104 4:1000; do
  ranks=${case%:*} bytes=${case#*:}
  [ "$bytes" = "$case" ] && bytes=
  DNN_MPI_CHUNK_BYTES=$bytes timeout 120 mpirun --allow-run-as-root \
    --oversubscribe -n "$ranks" "$work/collectives" >out 2>err ||
    { cat err; fail "$case ranks"; }
  [ "$(grep -c "holds on $ranks ranks over mpi" out)" = "$ranks" ] ||
    { cat out err; fail "$case ranks"; }
done
timeout 60 mpirun --allow-run-as-root --oversubscribe -n 3 "$work/collectives" \
  disagree >out 2>err
[ $? = 3 ] && grep -q "ranks disagree: this one is at step 0, collective" err ||
  { cat out err; fail "orders that differ"; }
for check in passes large; do
  timeout 120 mpirun --allow-run-as-root --oversubscribe -n 2 \
    "$work/collectives" $check >out 2>err || { cat err; fail "$check"; }
  [ "$(grep -c "holds on 2 ranks over mpi" out)" = 2 ] || fail "$check"
done

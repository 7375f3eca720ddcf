#!/bin/bash
# Every kind of collective gives the right result over MPI.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "no mpirun"
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -o "$work/collectives" \
  "$root/tests/e2e/collectives.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -fopenmp -lm -ldl -lpthread || fail "cannot compile the test"
for ranks in 2 3 4 5 6 8; do
  timeout 120 mpirun --allow-run-as-root --oversubscribe -n $ranks \
    "$work/collectives" >out 2>err || { cat err; fail "$ranks ranks"; }
  [ "$(grep -c "holds on $ranks ranks over mpi" out)" = $ranks ] ||
    { cat out err; fail "$ranks ranks"; }
done

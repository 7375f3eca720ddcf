#!/bin/bash
# Equal bits on integer data: one step of emitted programs on 1, 2 and 4 ranks
# against the interpreter, on random models that provably do not round.
#   exact.sh DNNC [FIRST [LAST]]   seeds, default 1 to 4
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/random.bash"
first=${2:-1} last=${3:-${2:-4}}
ranks="1"
has_mpi && ranks="1 2 4"
for seed in $(seq "$first" "$last"); do
  facts=$("$exact" make "$seed" "m$seed") || fail "seed $seed: $facts"
  for n in $ranks; do
    step "m$seed" --ranks "$n"
    "$exact" compare "$seed" "$checkpoint" "$loss" ||
      fail "seed $seed on $n ranks ($facts)"
  done
  echo "seed $seed: $facts, ranks $ranks: equal bits"
done
[ "$ranks" = "1 2 4" ] || skip "ranks: needs mpirun"

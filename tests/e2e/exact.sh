#!/bin/bash
# Equal bits on integer data: one step of emitted programs on 1, 2 and 4 ranks,
# and in micro-batches, against the interpreter, on random models that provably
# do not round.
#   exact.sh DNNC [FIRST [LAST]]   seeds, default 53 to 58
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/random.bash"
first=${2:-53} last=${3:-${2:-58}}
spreads="1:1" pieces="1:4"
has_mpi && spreads="1:1 2:1 4:1" pieces="2:2"
check() { # seed ranks:microbatches facts
  step "m$1" --ranks "${2%:*}" --microbatches "${2#*:}"
  "$exact" compare "$1" "$checkpoint" "$loss" ||
    fail "seed $1 on $2 (ranks:micro-batches; $3)"
}
for seed in $(seq "$first" "$last"); do
  libraries "$seed"
  facts=$("$exact" make "$seed" "m$seed") || fail "seed $seed: $facts"
  here=$spreads
  # A sum over the batch inside the net needs all samples at once.
  case $facts in *reduces_batch=0) here="$here $pieces" ;; esac
  for spread in $here; do check "$seed" "$spread" "$facts"; done
  echo "seed $seed: $facts, ranks:micro-batches $here: equal bits"
done
has_mpi || skip "ranks: needs mpirun"

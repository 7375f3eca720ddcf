#!/bin/bash
# Programs emitted with -O0 and with -O2 agree within rounding, with each other
# and with the interpreter, on random models of floats.
#   levels.sh DNNC [FIRST [LAST]]   seeds, default 1 to 6
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/random.bash"
first=${2:-1} last=${3:-${2:-6}}
for seed in $(seq "$first" "$last"); do
  libraries "$seed"
  facts=$("$exact" make-real "$seed" "m$seed") || fail "seed $seed: $facts"
  for level in -O0 -O2; do
    step "m$seed" $level
    "$exact" compare-real "$seed" "$checkpoint" "$loss" ||
      fail "seed $seed with $level ($facts)"
  done
  echo "seed $seed: $facts: -O0 and -O2 agree"
done

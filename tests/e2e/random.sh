#!/bin/bash
# Random programs give the same results at -O0 and -O2, on one rank and on two,
# in one run and in two; programs that once failed come first.
#   random.sh DNNC [COUNT [FIRST]]   default 12 programs from seed 1
. "$(dirname "$0")/lib.sh"
random=$(dirname "$dnnc")/random_programs
export OMP_NUM_THREADS=1
for file in "$root"/tests/random/found/*.dnn; do
  "$random" --dnnc "$dnnc" "$file" >log || { cat log; fail "$file"; }
done
"$random" --dnnc "$dnnc" --emit 4 --count "${2:-12}" --seed "${3:-1}" \
  --out "${DNNC_FAILED:-$work/failed}" || fail "see above"

#!/bin/bash
# Random programs, compiled and run: -O0 and -O2, one rank and two, one go and
# two halves; first the programs that once failed.
#   random.sh DNNC [COUNT [FIRST]]   default 12 programs from seed 1
. "$(dirname "$0")/lib.sh"
random=$(dirname "$dnnc")/random_programs
export OMP_NUM_THREADS=1
for file in "$root"/tests/random/found/*.dnn; do
  "$random" --dnnc "$dnnc" "$file" >log || { cat log; fail "$file"; }
done
"$random" --dnnc "$dnnc" --emit 4 --count "${2:-12}" --seed "${3:-1}" \
  --out "${DNNC_FAILED:-$work/failed}" || fail "see above"

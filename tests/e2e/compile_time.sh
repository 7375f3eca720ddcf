#!/bin/bash
# Compile time grows with the kinds of blocks, not with layers: GPT-2 with 12
# and with 96 layers, everything compiled anew.  Measured in CPU time of dnnc
# and its compilers, median of three, so that a busy machine does not matter.
. "$(dirname "$0")/lib.sh"
cpu_seconds() { # layers
  local TIMEFORMAT='%U %S'
  { time "$dnnc" build "$root/models/gpt2.dnn" precision.compute=f32 L="$1" \
    --no-cache -o "gpt2-$1" >log 2>&1; } 2>&1 | awk '{ print $1 + $2 }'
}
median() { # layers
  for _ in 1 2 3; do cpu_seconds "$1"; done | sort -n | sed -n 2p
}
few=$(median 12) many=$(median 96)
[ -x gpt2-96/rank-0000 ] || { cat log; fail "gpt2 with 96 layers"; }
echo "12 layers: $few s, 96 layers: $many s"
awk -v a="$few" -v b="$many" 'BEGIN { exit !(a > 0 && b < 1.5 * a) }' ||
  fail "96 layers take $many s, 12 layers $few s"

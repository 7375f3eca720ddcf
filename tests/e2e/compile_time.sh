#!/bin/bash
# Compile time grows with the kinds of blocks, not with layers: GPT-2 with 12
# and with 96 layers, everything compiled anew.  What does grow, the graphs of
# dnnc itself, grows in proportion: 384 layers against 96, kernels from the
# cache.  Measured in CPU time of dnnc and its compilers, least of three, so
# that a busy machine matters little.
. "$(dirname "$0")/lib.sh"
cpu_seconds() { # layers option...
  local TIMEFORMAT='%U %S' layers=$1
  shift
  { time "$dnnc" build "$root/models/gpt2.dnn" precision.compute=f32 \
    L="$layers" "$@" -o "gpt2-$layers" >log 2>&1; } 2>&1 |
    awk '{ print $1 + $2 }'
}
least() { # layers option...
  for _ in 1 2 3; do cpu_seconds "$@"; done | sort -n | head -n 1
}
within() { # most less more what
  awk -v m="$1" -v a="$2" -v b="$3" 'BEGIN { exit !(a > 0 && b < m * a) }' ||
    fail "$4 take $3 s, more than $1 times $2 s"
}
few=$(least 12 --no-cache) many=$(least 96 --no-cache)
[ -x gpt2-96/rank-0000 ] || { cat log; fail "gpt2 with 96 layers"; }
echo "12 layers: $few s, 96 layers: $many s"
within 1.4 "$few" "$many" "96 layers"
cpu_seconds 96 >/dev/null # fills the cache
own=$(least 96) more=$(least 384)
[ -x gpt2-384/rank-0000 ] || { cat log; fail "gpt2 with 384 layers"; }
echo "without kernels: 96 layers: $own s, 384 layers: $more s"
within 6 "$own" "$more" "384 layers"

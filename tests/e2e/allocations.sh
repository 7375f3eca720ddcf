#!/bin/bash
# Every allocation of `dnnc check` fails once, and once for good (of thousands, a
# part of them): exit 3 with a message, or success; complete standard output or
# none, no leak (under a sanitized build) and no crash.
. "$(dirname "$0")/lib.sh"
model=$root/models/mlp.dnn
"$dnnc" check "$model" >whole || fail "check"
count=0 step=1
for forever in "" +; do
  for n in $(seq 0 $step 100000); do
    DNNC_FAIL_ALLOC=$n$forever "$dnnc" check "$model" >out 2>err
    code=$?
    count=$((count + 1))
    if [ $code = 0 ]; then
      cmp -s out whole || fail "allocation $n$forever: other output"
      break
    fi
    [ $code = 3 ] || { cat err; fail "allocation $n$forever: exit $code"; }
    [ -s out ] && fail "allocation $n$forever: partial output"
    message=$(<err) # thousands of runs under a sanitizer: nothing else is started
    [[ $message == *'out of memory'* ]] || fail "allocation $n$forever: no message: $message"
    [[ $message != *Sanitizer* ]] || fail "allocation $n$forever: $message"
  done
  [ "$n" -gt 3 ] || fail "only $n allocations were tried"
  step=$((1 + n / 500)) # under a sanitizer there are 1,500 of them
done
echo "$count runs"

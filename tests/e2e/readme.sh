#!/bin/bash
# Every command line of the README that starts with build/dnnc, in a copy of the
# tree and with few steps.
. "$(dirname "$0")/lib.sh"
ln -s "$root/models" "$root/tests" .
cp -r "$root/data" .
mkdir build && ln -s "$dnnc" build/dnnc
lines=0
while IFS= read -r line; do
  line=${line%%#*}
  case $line in
  *" sample "*) "$dnnc" run models/chargpt.dnn steps=2 eval_batches=1 --quiet ||
    fail "a checkpoint to sample from" ;;
  *" predict "*) "$dnnc" run models/mlp.dnn steps=2 --quiet || fail "a checkpoint to predict from" ;;
  *" run "*) line="$line steps=3 eval_batches=1 --quiet" ;;
  esac
  lines=$((lines + 1))
  $line >out 2>&1 || { cat out; fail "README: $line"; }
done < <(grep -hE '^ +build/dnnc ' "$root/README.md")
echo "$lines command lines"
[ $lines -gt 5 ] || fail "too few command lines"

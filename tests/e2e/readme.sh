#!/bin/bash
# README.md: its models, commands and their output, IR and kernel are those of
# this compiler, within its first 100 lines; then every command line that
# starts with build/dnnc, in a copy of the tree and with few steps.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/page.bash"
has_mpi || skip "no mpirun"
ln -s "$root/models" "$root/tests" .
cp -r "$root/data" .
mkdir build && ln -s "$dnnc" build/dnnc
PATH="$(dirname "$dnnc"):$PATH"
try_page "$root/README.md"
head -n 100 "$root/README.md" >first
grep -q 'commit [0-9a-f]* on 20' first || grep -A 1 'commit$' first | grep -q ' on 20' || fail "no commit and date"
for word in '    tools/demo.sh' '```dnn ' '^ *| .*\^' '= relu ' '= fused ' 'omp simd' 'compare_step.py' '^| gpt2 .* 0\.'; do
  grep -q "$word" first || fail "the first 100 lines of README.md lack $word"
done
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

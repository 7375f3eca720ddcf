#!/bin/bash
# `dnnc simulate` says how long a schedule takes, in words and as JSON, and what
# is wrong with one that cannot be run.
. "$(dirname "$0")/lib.sh"

printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' >list.csv
"$dnnc" simulate list.csv >words || fail "a list"
grep -q '^2 ranks, 2 stages, 2 micro-batches: 9.0$' words ||
  { cat words; fail "words"; }
"$dnnc" simulate list.csv --times 1,0.25,0.5 --json >out.json || fail "JSON"
[ "$(field makespan out.json)" = 5.25 ] || { cat out.json; fail "times"; }

printf '3F0,0F0\n1F0,2F0\n' >stuck.csv
"$dnnc" simulate stuck.csv 2>message && fail "a deadlock"
grep -q "^stuck.csv:1:1: error: rank 0 waits for ever before '3F0'" message &&
  grep -q "^stuck.csv:2:5: note: it needs this, which rank 1 runs" message ||
  { cat message; fail "what a deadlock says"; }
for times in 1,1 1,1,1,1 1,x,1 1,-1,1 ''; do
  "$dnnc" simulate list.csv --times "$times" 2>message && fail "times '$times'"
  grep -q "takes three numbers" message || { cat message; fail "'$times'"; }
done
"$dnnc" simulate missing.csv 2>message && fail "no file"
grep -q "cannot open 'missing.csv'" message || { cat message; fail "no file"; }
"$dnnc" simulate "$root/models/mlp.dnn" 2>message && fail "a model"
grep -q "not supported yet" message || { cat message; fail "a model"; }
echo "simulate: words, JSON, deadlocks and mistakes"

#!/bin/bash
# The published runs on one mesh: predicted steps against published ones, and with
# the constants of the other rows (40 s).
. "$(dirname "$0")/lib.sh"
csv=$root/../shared/data/published/one-mesh.csv
[ -r "$csv" ] || skip "needs one-mesh.csv of the published data"
python3 "$root/benchmarks/one_mesh.py" "$dnnc" "$csv" >table || { cat table; fail "an error is too large"; }
cat table
# What `dnnc simulate` says of itself (price/rates.def) is today's.
errors=$(sed -n 's/^mean error \(.*\)$/\1/p' table)
"$dnnc" simulate "$root/models/mlp.dnn" --cluster "$root/models/h100x256.cluster" --ranks 1 >words || fail "simulate"
grep -q "(estimate; mean error $errors, on $(grep -c ' GB' table) published runs)" words ||
  { head -n 1 words; fail "ERRORS of rates.def is not $errors"; }
# Two of the runs with stages, whose plan shards the table of words that the first and the last stage read.
python3 "$root/benchmarks/staged_runs.py" "$dnnc" "$root/../shared/data/published" staged megatron-39b megatron-76b ||
  fail "a run with stages is too far off"
[ -x "$(dirname "$dnnc")/price_rows" ] || skip "the fit needs price_rows of a build"
python3 "$root/benchmarks/one_mesh.py" --fit "$dnnc" "$csv" ||
  fail "a row left out is too far off"

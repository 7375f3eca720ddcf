#!/bin/bash
# The published runs on one mesh: predicted steps against published ones, and with
# the constants of the other rows (40 s).
. "$(dirname "$0")/lib.sh"
csv=$root/../shared/data/published/one-mesh.csv
[ -r "$csv" ] || skip "needs one-mesh.csv of the published data"
python3 "$root/benchmarks/one_mesh.py" "$dnnc" "$csv" || fail "an error is too large"
[ -r "$(dirname "$dnnc")/libdriver.a" ] || skip "the fit needs the archives of a build"
python3 "$root/benchmarks/one_mesh.py" --fit "$dnnc" "$csv" ||
  fail "a row left out is too far off"

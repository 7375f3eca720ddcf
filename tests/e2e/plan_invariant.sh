#!/bin/bash
# A model that is written in another form, with the same computation, gets a plan with the same step: its repeat written
# out, other names of layers, dims in another order, blocks under two names by turns.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
export PYTHONDONTWRITEBYTECODE=1
python3 "$root/benchmarks/plan_claims.py" forms "$dnnc" small || fail "another step"

#!/bin/bash
# Random plans that combine servers, versions, islands, compression, ZeRO, offload and stages: every command that takes a
# plan takes them or says at which line it does not, and runs have the losses of one rank.
# Usage: feature_plans.sh DNNC [COUNT [SEED [RUNS]]].
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
has_mpi && runs=${4:-2} || runs=0
python3 "$root/tests/random/feature_plans.py" "$dnnc" "${2:-16}" "${3:-1}" "$runs" || fail "plans of several features"

#!/bin/bash
# Random plans with stages get a price, or a message that has a place.
# Usage: stage_plans.sh DNNC [COUNT [SEED]].
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
export PYTHONDONTWRITEBYTECODE=1
python3 "$root/tests/random/stage_plans.py" "$dnnc" "${2:-200}" "${3:-1}" || fail "plans with stages"

#!/bin/bash
# A copy of the compiler without the written plans finds the same plan, the plan is read and printed as it is, and no
# random plan is faster than the bound of its certificate.  A second run of random plans takes them from the file.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
export PYTHONDONTWRITEBYTECODE=1
row=alexnet-h100x256
claims() { python3 "$root/benchmarks/plan_claims.py" "$@" || fail "$1"; }
claims away "$dnnc" $row
claims text "$dnnc" certificate $row
claims random "$dnnc" 24 1 state $row >first
claims random "$dnnc" 24 1 state $row >second
cat first
cmp -s first second || { cat second; fail "a run that goes on says something else"; }
[ "$(wc -l <state)" = 24 ] || { cat state; fail "a line for each plan"; }
grep -q '24 plans, [1-9][0-9]* legal, [1-9]' first || fail "no plan is legal"
# A bound that is above the found plan is seen.
sed -i 's/^\(\S* \S* fits\) .*/\1 1e-9/' state
python3 "$root/benchmarks/plan_claims.py" random "$dnnc" 24 1 state $row >third && { cat third; fail "no fault"; }
grep -q 'FAULT: below the bound: ' third || { cat third; fail "no fault is named"; }

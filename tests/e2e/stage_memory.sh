#!/bin/bash
# The search over stages keeps to the memory of a rank: what it prints packs into it, whatever
# bytes were estimated.  Where it finds nothing it prints no plan, names the least memory of which
# it knows, and finds a plan there.
. "$(dirname "$0")/lib.sh"
model="$root/models/chargpt.dnn L=2 B=16"
cluster=$root/models/pipedream-a.cluster

# plan_in MEMORY: a plan with two groups of ranks, in this memory of each.
plan_in() {
  printf 'mesh {\n  pipe = 2\n}\nplan {\n  memory = %s\n}\n' "$1" >pins.plan
  rm -f found.plan
  "$dnnc" plan $model --cluster "$cluster" --ranks 2 --plan pins.plan -o found.plan >out 2>message
}
# packs_into BYTES: every rank of the found plan does.
packs_into() {
  grep -q '^  cut after ' found.plan || { cat found.plan; fail "no stages in $1"; }
  "$dnnc" simulate $model --plan found.plan --cluster "$cluster" --json >out.json 2>message || { cat message; fail "simulate in $1"; }
  grep -o '"peak_bytes":[0-9]*' out.json | cut -d: -f2 >peaks
  [ -s peaks ] || fail "no bytes in $1"
  awk -v most="$1" '$1 > most { exit 1 }' peaks || fail "$(sort -n peaks | tail -n 1) bytes where a rank has $1"
}

for megabytes in 60 50 46 43 42 41 40 39; do
  plan_in "${megabytes}MB" || { cat message; fail "no plan in $megabytes MB"; }
  packs_into "${megabytes}000000"
done

# ---- nothing fits ----
plan_in 38MB
[ $? -eq 2 ] || fail "38 MB is enough"
[ ! -e found.plan ] || fail "a plan that needs more than there is"
least=$(grep -oE '^  memory = [0-9.]+MB ' message out | grep -oE '[0-9.]+MB' | head -n 1)
[ -n "$least" ] || { cat message; fail "no least memory"; }
plan_in "$least" || { cat message; fail "no plan in $least"; }
packs_into "$(awk -v m="${least%MB}" 'BEGIN { printf "%.0f", m * 1e6 }')"

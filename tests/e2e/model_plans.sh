#!/bin/bash
# Every plan of models/ compiles for its model, prints as a table, and its
# printed form is the same plan.
. "$(dirname "$0")/lib.sh"
stub_cc
n=0
for plan in "$root"/models/*.plan; do
  model=${plan%.plan}.dnn
  name=$(basename "$plan" .plan)
  "$dnnc" show "$plan" >out 2>&1 || { cat out; fail "show $name.plan"; }
  "$dnnc" ir "$model" --plan "$plan" --after=partition >one.ir 2>out || { cat out; fail "ir $name.plan"; }
  grep -qE '^graph train mesh\(|^# stage 1 of ' one.ir || fail "$name.plan spreads nothing"
  "$dnnc" build "$model" --plan "$plan" -o "$name.bundle" --data "$root" >out 2>&1 ||
    { cat out; fail "build $name.plan"; }
  "$dnnc" ir "$model" --plan "$name.bundle/plan.plan" --after=partition >two.ir || fail "$name: plan.plan"
  cmp one.ir two.ir || fail "$name.plan and the plan of its bundle differ"
  n=$((n + 1))
done
[ $n -ge 2 ] || fail "too few plans"
echo "$n plans"

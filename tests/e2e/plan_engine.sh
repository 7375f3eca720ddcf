#!/bin/bash
# The general engine in the search: it takes the assignments that elimination cannot, and forced it finds plans as fast
# as those of elimination.
. "$(dirname "$0")/lib.sh"
models=$(dirname "$0")/../../models

# search NAME SEARCH MODEL [ARGUMENT...]: plans into NAME.json and NAME.plan.
search() {
  local name=$1 search=$2
  shift 2
  "$dnnc" plan "$@" --search "$search" --json -o "$name.plan" >"$name.json" 2>"$name.err" ||
    { cat "$name.err"; fail "no plan of $*"; }
}

# ---- chains of operators ----
for case in "mlp 16" "vgg16 16" "chargpt 8"; do
  read -r model ranks <<<"$case"
  for way in elimination engine; do
    search $way $way "$models/$model.dnn" --cluster "$models/pipedream-b.cluster" --ranks "$ranks" --effort 40
  done
  [ "$(field engine elimination.json)" = 0 ] || fail "$model went to the engine"
  [ "$(field elimination engine.json)" = 0 ] || fail "$model was eliminated"
  [ "$(field engine engine.json)" -gt 0 ] || fail "$model did not go to the engine"
  awk -v a="$(field step_s elimination.json)" -v b="$(field step_s engine.json)" \
    'BEGIN { exit !(b <= 1.005 * a && a <= 1.005 * b) }' || fail "$model: the engine's plan differs by more than 0.5 %"
  "$dnnc" verify "$models/$model.dnn" --plan engine.plan --cluster "$models/pipedream-b.cluster" --certificate \
    >verify.out 2>&1 || { cat verify.out; fail "$model: the certificate of the engine's plan"; }
done

# ---- cells that read the two cells before: tables are too large ----
small=(cells=1 width=16 side=32 N=16 K=10)
for run in first second; do
  search $run elimination "$models/amoebanet.dnn" "${small[@]}" --cluster "$models/pipedream-b.cluster" --ranks 4 --effort 12
done
[ "$(field engine first.json)" -gt 0 ] || fail "no assignment of a wide model went to the engine"
[ "$(field elimination first.json)" -gt 0 ] || fail "no assignment of a wide model was eliminated"
sed s/first.duals/second.duals/ first.plan | cmp - second.plan || fail "two searches differ"
cmp first.duals second.duals || fail "the duals of two searches differ"

# ---- the duals beside the plan prove the bound ----
wide=("$models/amoebanet.dnn" "${small[@]}" --cluster "$models/pipedream-b.cluster" --certificate --plan)
"$dnnc" verify "${wide[@]}" first.plan >out || { cat out; fail "duals do not prove the bound"; }
grep -qx 'bound: computed again, no plan of its space that fits is faster' out || { cat out; fail "the bound is not computed again"; }
# refuses WHAT WORDS: claim.plan is refused with these words.
refuses() {
  "$dnnc" verify "${wide[@]}" claim.plan >out 2>&1 && fail "verified: $1"
  [ $? -le 2 ] && grep -q "$2" out || { cat out; fail "$1"; }
}
# A bound that is higher by 0.1 %, with its gap.
scale_bound() { awk -v by="$1" '$1 == "search_gap" { next } $1 == "step" { step = $3 + 0 } $1 == "bound" { unit = $3; gsub(/[0-9.]/, "", unit); $3 = sprintf("%.9f%s", bound = ($3 + 0) * by, unit) }
  $1 == "gap" { $3 = sprintf("%.17g", 1 - bound / step) } { print }' "$2"; }
scale_bound 1.001 first.plan >claim.plan
refuses "a bound raised by 0.1 %" "the bound is not one: plans of .* may take"
scale_bound 0.9 first.plan >lower.plan
"$dnnc" verify "${wide[@]}" lower.plan >out || { cat out; fail "a lower bound"; }
sed 's/^  duals .*/  duals = "none.duals 0"/' first.plan >claim.plan
refuses "a missing file" "claim.plan:[0-9]*:3: error: .*none.duals"
sed 's/^  duals .*/  duals = "first.duals"/' first.plan >claim.plan
refuses "no hash" "claim.plan:[0-9]*:3: error: the duals have no hash"
sed 's/first.duals/claim.duals/' first.plan >claim.plan
head -c 5000 first.duals >claim.duals
refuses "a truncated file" "claim.plan:[0-9]*:3: error: 'claim.duals' has the hash [0-9a-f]*: it is not the file"
sed '/^  duals /d' first.plan >claim.plan
refuses "no file is named" "not checked: a table would be too large, and no duals are named: 'dnnc plan -o PLAN' writes them"
"$dnnc" plan "$models/amoebanet.dnn" "${small[@]}" --cluster "$models/pipedream-b.cluster" --ranks 4 --effort 12 >printed.plan 2>note ||
  { cat note; fail "a plan without -o"; }
grep -q "^note: only duals prove the bound of this plan: -o PLAN writes them" note || { cat note; fail "nothing says what proves the bound"; }
rm first.duals
cp first.plan claim.plan
refuses "a removed file" "first.duals"

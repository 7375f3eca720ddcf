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
cmp first.plan second.plan || fail "two searches differ"

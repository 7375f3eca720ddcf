#!/bin/bash
# The recurrent models learn: first names to at most 2.10 nats for each
# character on the last tenth, in two thirds of the model's steps, and 99 % of
# strings reversed without a mistake by a network that reads its own letters.
. "$(dirname "$0")/lib.sh"
learn() { # model [NAME=VALUE ...]: the fields of the last evaluation
  "$dnnc" run "$root/models/$1.dnn" --data "$root" --json --no-save \
    eval_every=0 "${@:2}" >"$1.json" 2>"$1.err" || { cat "$1.err"; fail "$1"; }
  grep '"validation_loss"' "$1.json" | tail -n 1
}
names=$(learn charlstm steps=1000 | grep -o '"validation_loss":[^,}]*' | cut -d: -f2)
echo "charlstm: $names nats for each character"
awk -v l="$names" 'BEGIN { exit !(l != "" && l <= 2.10) }' || fail "charlstm"
exact=$(learn reverse | grep -o '"exact":[^,}]*' | cut -d: -f2)
echo "reverse: $exact of the strings"
awk -v e="$exact" 'BEGIN { exit !(e != "" && e >= 0.99) }' || fail "reverse"

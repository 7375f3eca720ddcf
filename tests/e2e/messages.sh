#!/bin/bash
# Every message of the front end and of plans is in a golden: the script
# searches for the longest part of its text between two arguments.  A new row of
# support/diags.def needs a wrong program that shows it.
. "$(dirname "$0")/lib.sh"
# Files of 16 MiB, 65 files that import each other; the memory pin is in plans.sh, a
# remat that does not help in plan_memory.sh, an offload that does nothing in offload.sh; a decision without a line in
# unit_plan_print; another program of a certificate in plan.sh.
# No plan is known that leads to `placement`: it reports a line about a name that
# a value does not follow, and random plans had none.  Nor is one known that leads to
# `place_circle`: nodes of one path would have to wait for each other through another.
elsewhere=" place_circle plan_no_line certificate_program source_too_large import_depth memory_pin remat_peak offload_not_stored compress_nothing placement "
cat $(find "$root/tests/golden" -name '*.txt') >goldens
missing=0 rows=0
while IFS=$'\t' read -r name piece; do
  rows=$((rows + 1))
  case $elsewhere in *" $name "*) continue ;; esac
  grep -qF -- "$piece" goldens && continue
  echo "FAIL: no golden shows '$name': $piece"
  missing=1
done < <(awk '/^\/\* ---- operators/ { exit }
  /^DIAG\(/ {
    name = $0; sub(/^DIAG\(/, "", name); sub(/,.*/, "", name)
    text = $0; sub(/^[^"]*"/, "", text); sub(/"\)$/, "", text); gsub(/\\"/, "\"", text)
    n = split(text, piece, /%#?(\.[0-9])?(ll|l|z)?[sdufg]/); best = ""
    for (i = 1; i <= n; i++) if (length(piece[i]) > length(best)) best = piece[i]
    print name "\t" best
  }' "$root/support/diags.def")
echo "$rows messages"
[ $rows -ge 120 ] || fail "too few messages"
exit $missing

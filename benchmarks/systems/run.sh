#!/bin/bash
# run.sh DNNC [short] -- trains every pair of pairs.txt for 20 steps under its
# plan over MPI and compares each loss and gradient norm with one rank: within
# 1e-5 relative.  `short` runs the short half.
set -u
dnnc=$1 half=${2:-all}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# losses MODEL [OPTION...]: a line per step: loss and norm.
losses() {
  "$dnnc" run "$@" --steps 20 --no-save --json >out.json 2>err.txt || {
    sed 's/^/  /' err.txt >&2
    return 1
  }
  sed -n 's/.*"step":[0-9]*,"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2/p' out.json
}

pairs=0 wrong=0
while read -r which plan model overrides; do
  case $which in '' | '#'*) continue ;; esac
  [ "$half" = short ] && [ "$which" != short ] && continue
  pairs=$((pairs + 1))
  # shellcheck disable=SC2086 # overrides are words
  set -- "$root/$model" $overrides
  one=one-$(printf '%s ' "$model" "$overrides" | tr -c 'a-zA-Z0-9\n' _).txt
  [ -s "$one" ] || losses "$@" >"$one"
  losses "$@" --plan "$root/benchmarks/plans/$plan.plan" >many.txt
  paste -d ' ' "$one" many.txt | awk -v pair="$plan ${model##*/}" '
    NF != 4 { short = 1 }
    { for (i = 1; i <= 2; i++) {
        d = ($i - $(i + 2)) / ($i == 0 ? 1 : $i)
        if (d < 0) d = -d
        if (d > worst) worst = d } }
    END {
      bad = short || NR != 20 || worst > 1e-5
      printf "%s %-40s %d steps, worst difference %.1e\n",
             bad ? "WRONG" : "ok   ", pair, NR, worst
      exit bad }' || wrong=$((wrong + 1))
done <"$root/benchmarks/systems/pairs.txt"
echo "$pairs pairs, $wrong wrong"
[ "$pairs" -gt 0 ] && [ "$wrong" -eq 0 ]

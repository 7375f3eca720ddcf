#!/bin/bash
# run.sh DNNC [short|all [WORD]] -- checks the pairs of pairs.txt, a line each,
# or those whose line has the word.
#
# `dnnc verify` plays every pair in exact mode and in f64.  Those that train
# make 20 steps over MPI: each loss, gradient norm and validation loss must be
# within 1e-5 relative of one rank's, and at the end replicas are equal bit for bit.
set -u
dnnc=$1 half=${2:-all} word=${3:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
declare -A models

is_chosen() { [ "$1" = short ] || { [ "$1" = long ] && [ "$half" != short ]; }; }

# count_ranks PLAN: the product of the mesh.
count_ranks() {
  awk 'BEGIN { n = 1 } /^mesh/ { m = 1 } /^}/ { m = 0 } m && $2 == "=" { n *= $3 } END { print n }' "$1"
}

# check_plan MODEL ...: sets exact and f64, and says what is wrong.
check_plan() {
  exact=refused f64=-
  "$dnnc" verify "$@" --json >verify.json 2>err.txt </dev/null
  local code=$?
  if [ ! -s verify.json ]; then
    sed 's/^/  /' err.txt
    return 1
  fi
  f64=$(grep -o '"max_rel_error":[^,}]*' verify.json | cut -d: -f2)
  exact=equal
  [ $code = 0 ] && return
  exact=differs
  sed 's/"guarantee":"[^"]*",//; s/^/  /' verify.json
  return 1
}

# losses MODEL ...: a line per step with loss and norm, and one per evaluation.
losses() {
  "$dnnc" run "$@" --steps 20 --no-save --json >out.json 2>err.txt </dev/null || {
    sed 's/^/  /' err.txt >&2
    return 1
  }
  sed -n -e 's/.*"step":[0-9]*,"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2/p' \
    -e 's/.*"validation_loss":\([0-9][^,]*\),.*/\1 \1/p' out.json
}

# check_training PLAN MODEL ...: sets worst and replicas.  A run whose ranks store
# different replicas of a tensor ends with a fault.
check_training() {
  local plan=$1 one is_near
  shift
  worst=failed replicas=-
  one=one-$(printf '%s ' "$@" | tr -c 'a-zA-Z0-9\n' _).txt
  [ -s "$one" ] || losses "$@" >"$one" || return 1
  losses "$@" --plan "$plan" >many.txt || return 1
  worst=$(paste -d ' ' "$one" many.txt | awk '
    NF != 4 || /[^-+.0-9e ]/ { bad = 1 }
    { for (i = 1; i <= 2; i++) {
        d = ($i - $(i + 2)) / ($i == 0 ? 1 : $i)
        if (d < 0) d = -d
        if (!(d <= worst)) worst = d } }
    END { printf "%.1e", worst
          exit bad || NR < 20 || !(worst <= 1e-5) }')
  is_near=$?
  replicas=differ
  grep -o '"parameters_sha256":\[[^]]*' out.json | cut -d[ -f2 | tr , '\n' |
    sort -u | wc -l | grep -qx 1 && replicas=equal
  [ $is_near = 0 ] && [ $replicas = equal ]
}

row='%-5s %-19s %-8s %5s %-7s %8s %8s %-8s %7s  %s\n'
# shellcheck disable=SC2059 # the format is above
printf "$row" '' plan model ranks exact f64 losses replicas seconds sizes
while read -r verify train plan model overrides; do
  case $verify in
  '' | '#'*) continue ;;
  model)
    models[$train]="$plan $model $overrides"
    continue
    ;;
  esac
  is_chosen "$verify" || continue
  case "$plan $model $overrides " in *"$word"*) ;; *) continue ;; esac
  file=$root/benchmarks/plans/$plan.plan begin=$EPOCHREALTIME status=ok
  # shellcheck disable=SC2086 # overrides are words
  set -- $root/${models[$model]} $overrides
  check_plan "$@" --plan "$file" || status=WRONG
  worst=- replicas=-
  if [ $status = ok ] && is_chosen "$train"; then
    check_training "$file" "$@" || status=WRONG
  fi
  # shellcheck disable=SC2059
  printf "$row" $status "$plan" "$model" "$(count_ranks "$file")" "$exact" "$f64" "$worst" \
    "$replicas" "$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $begin }")" "$overrides" | tee -a table.txt
done <"$root/benchmarks/systems/pairs.txt"

touch table.txt
awk '{ n++; wrong += $1 != "ok"; verified += $5 == "equal"; trained += $8 == "equal"
       if ($6 + 0 > f64) f64 = $6
       if ($7 + 0 > worst) worst = $7 }
     END {
       printf "%d pairs verified, worst f64 difference %s; ", verified, f64 + 0
       printf "%d trained, worst relative difference %s; %d wrong\n", trained, worst + 0, wrong
       exit n == 0 || wrong > 0 }' table.txt

#!/bin/bash
# The zoo: every row of data/zoo/model-zoo.csv has its line in
# tests/zoo/models.txt; `dnnc check` must count the row's parameters and state
# exactly and its multiply-accumulates within 0.1 % (2 FLOP each, x samples).
# Then the count at the head of each model file.
. "$(dirname "$0")/lib.sh"
table=$root/tests/zoo/models.txt
cd "$root" || exit 1
bad=0 rows=0 waiting=0
grep -v '^#' "$table" | sed 's/ *| */\t/g' >"$work/table"

# The columns of a CSV line, one a line; quotes may hold commas.
columns() {
  awk '{
    n = 0; field = ""; quoted = 0
    for (i = 1; i <= length($0); i++) {
      c = substr($0, i, 1)
      if (c == "\"") quoted = !quoted
      else if (c == "," && !quoted) { print field; field = "" }
      else field = field c
    }
    print field
  }' <<<"$1"
}
number() { grep -o "\"$1\":[0-9]*" "$work/json" | head -n 1 | cut -d: -f2; }
complain() { # what got want
  echo "FAIL: $line_model ($line_words): $1 $2, not $3"
  bad=1
}
option() { grep -o "\b$1=[^ ]*" <<<"$line_options" | head -n 1 | cut -d= -f2-; }

check_row() { # name, configuration, parameters, state, macs
  if [ "${line_file%% *}" = - ]; then
    waiting=$((waiting + 1))
    return
  fi
  # shellcheck disable=SC2086
  "$dnnc" check $line_file --json >"$work/json" 2>"$work/err" ||
    { cat "$work/err"; complain check failed done; return; }
  rows=$((rows + 1))
  [ "$(number parameters)" = "$3" ] || complain parameters "$(number parameters)" "$3"
  state=$(option state)
  [ -z "$state" ] && state=$4
  [ -z "$state" ] || [ "$(number state)" = "$state" ] ||
    complain state "$(number state)" "$state"
  active=$(grep -oE '[0-9]+ active' <<<"$2" | tr -dc 0-9)
  [ -z "$active" ] || [ "$(number active_parameters)" = "$active" ] ||
    complain active_parameters "$(number active_parameters)" "$active"
  [ -z "$5" ] || [ "$(option flops)" = no ] && return
  T=$(option T)
  macs=${5//attention/$(option attention)}
  want=$(awk -v T="${T:-1}" "BEGIN { printf \"%.0f\", 2 * T * (${macs}) }")
  close "$(number flops_forward)" "$want" 0.001 ||
    complain flops_forward "$(number flops_forward)" "$want"
}

while IFS= read -r csv; do
  case $csv in '#'* | model,*) continue ;; esac
  mapfile -t field < <(columns "$csv")
  found=0
  while IFS=$'\t' read -r line_model line_words line_file line_options; do
    [ "$line_model" = "${field[0]}" ] || continue
    case ${field[1]} in *"$line_words"*) ;; *) continue ;; esac
    found=$((found + 1))
    check_row "${field[@]:0:5}"
  done <"$work/table"
  [ $found = 1 ] || { echo "FAIL: $found lines for '${field[0]}', '${field[1]}'"; bad=1; }
done <data/zoo/model-zoo.csv
echo "$rows rows of the zoo, $waiting not stated yet"
[ $rows -ge 53 ] || fail "too few rows"

"$dnnc" list models >"$work/list" || fail "list models"
for model in models/*.dnn; do
  grep -q "^$model " "$work/list" || fail "list models leaves out $model"
done

# "# 25,557,032 parameters, 53,120 values of state", "of which N are at work".
heads=0
for model in models/*.dnn; do
  [ "$model" = models/lib.dnn ] && continue
  head=$(head -n 5 "$model" | grep -m 1 -E '^# [0-9,]+ parameters') ||
    { echo "FAIL: $model says no count of parameters"; bad=1; continue; }
  said=$(grep -oE '[0-9,]+ parameters' <<<"$head" | head -n 1 | tr -dc 0-9)
  grep -qE "^$model +$(grep -oE '[0-9,]+' <<<"$head" | head -n 1) " "$work/list" ||
    { echo "FAIL: list models has another count of $model"; bad=1; }
  state=$(grep -oE '[0-9,]+ values of state' <<<"$head" | head -n 1 | tr -dc 0-9)
  "$dnnc" check "$model" --json >"$work/json" 2>"$work/err" ||
    { cat "$work/err"; echo "FAIL: $model"; bad=1; continue; }
  line_model=$model line_words=head
  [ "$(number parameters)" = "$said" ] || complain parameters "$(number parameters)" "$said"
  [ -z "$state" ] || [ "$(number state)" = "$state" ] ||
    complain state "$(number state)" "$state"
  active=$(grep -oE 'of which [0-9,]+ are at work' <<<"$head" | tr -dc 0-9)
  [ -z "$active" ] || [ "$(number active_parameters)" = "$active" ] ||
    complain active_parameters "$(number active_parameters)" "$active"
  heads=$((heads + 1))
done
echo "$heads models say what they count"
exit $bad

#!/bin/bash
# Recurrent models: every tensor of GNMT-8 has its published size, GNMT-16 is an
# override, and each model takes the same small steps at -O0 and -O2.
. "$(dirname "$0")/lib.sh"
models=$root/models

# The parameters as "path elements".
"$dnnc" ir "$models/gnmt8.dnn" >gnmt.ir || fail "dnnc ir"
grep ' = input ' gnmt.ir | grep ' param "' | awk '{
  match($0, /\[[^]]*\]/); dims = substr($0, RSTART, RLENGTH); n = 1
  type = $0; sub(/^[^:]*: [a-z0-9]*/, "", type); sub(/ param .*/, "", type)
  while (match(type, /:[0-9]+/)) {
    n *= substr(type, RSTART + 1, RLENGTH - 1); type = substr(type, RSTART + RLENGTH)
  }
  path = $0; sub(/.* param "/, "", path); sub(/".*/, "", path)
  print path, n }' | sort >ours
grep -v '^#' "$root/tests/zoo/tensors-gnmt8.txt" | while read -r path name suffix; do
  if [ -z "$suffix" ]; then
    echo "$path $name"
  else
    echo "$path.wx $name.weight_ih$suffix"
    echo "$path.wh $name.weight_hh$suffix"
    echo "$path.b $name.bias_ih$suffix"
    echo "$path.b2 $name.bias_hh$suffix"
  fi
done | sort -k 2 >map
grep -v '^#' "$root/data/zoo/tensors-gnmt8.csv" | tail -n +2 |
  awk -F, '{ print $1, $3 }' | sort >theirs
join -1 2 -2 1 map theirs | awk '{ print $2, $3 }' | sort >wanted
[ "$(wc -l <wanted)" = "$(wc -l <theirs)" ] || fail "tensors without a parameter"
diff wanted ours || fail "tensors of gnmt8"
echo "gnmt8: $(wc -l <ours) tensors as published"

"$dnnc" check "$models/gnmt8.dnn" L=8 --json >gnmt16 || fail "gnmt16"
grep -o '"parameters":[0-9]*' gnmt16 | head -n 1 | grep -q ':244622913$' ||
  fail "gnmt16: $(head -c 200 gnmt16)"

losses() { grep '"step"' "$1" | grep -o '"loss":[^,}]*' | cut -d: -f2; }
while read -r model settings; do
  for level in -O0 -O2; do
    # shellcheck disable=SC2086
    DNN_POISON=1 "$dnnc" run "$models/$model.dnn" $level --steps 3 --json \
      --no-save --data "$root" --verify-ir eval_every=0 $settings \
      >"$model$level" 2>err || { cat err; fail "$model"; }
  done
  paste -d' ' <(losses "$model-O0") <(losses "$model-O2") | awk '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (!(d <= 2e-5)) bad = 1; n++ }
    END { exit bad || n < 3 }' || fail "$model: -O0 and -O2 differ"
  echo "$model: three steps agree"
done <<'LIST'
awdlm B=4 T=6 V=50 E=8 C=12
gnmt8 B=4 S=5 T=6 V=40 C=8
s2vt B=2 M=5 W=4 P=12 E=6 C=8 V=30
charlstm B=4 C=16 eval_batches=1
reverse B=4 C=16 eval_batches=1
LIST

# Under ZeRO 3 no weight is gathered more than twice a micro-batch, however many
# iterations read it, and each collective has a name.
cat >zero.plan <<'PLAN'
mesh { d = 2 }
plan {
  microbatches = 2
  zero = 3
  shard B over d
}
PLAN
for model in awdlm gnmt8 s2vt charlstm reverse; do
  "$dnnc" show zero.plan --model "$models/$model.dnn" --collectives >shown ||
    fail "$model: dnnc show"
  grep "''" shown && fail "$model: a collective has no name"
  awk -F "'" '/^all_gather/ { split($1, row, " "); n[$2 row[3]] += row[4] }
    END { for (weight in n) if (n[weight] > 4) { print weight, n[weight]; bad = 1 }
          exit bad || length(n) < 2 }' shown || fail "$model: gathers"
  echo "$model: weights are gathered at most twice a micro-batch"
done

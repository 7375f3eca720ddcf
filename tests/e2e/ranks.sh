#!/bin/bash
# Data parallelism: losses on 1, 2 and 4 ranks agree within 1e-5, and all ranks
# end with equal parameters, bit for bit.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
train() { # model ranks steps
  "$dnnc" run "$root/models/$1.dnn" --ranks "$2" --steps "$3" --json --no-save \
    --data "$root" eval_every=0 eval_batches=1 >"$1-$2.json" 2>"$1-$2.err" ||
    { cat "$1-$2.err"; fail "$1 on $2 ranks"; }
}
for case in mlp:10 lenet:10 charmoe:10 chargpt:${DNNC_CHARGPT_STEPS:-100}; do
  model=${case%%:*} steps=${case##*:}
  for ranks in 1 2 4; do
    train "$model" "$ranks" "$steps"
    hashes=$(grep -o '"parameters_sha256":\[[^]]*\]' "$model-$ranks.json" |
      grep -o '"[0-9a-f]\{64\}"')
    [ "$(echo "$hashes" | wc -l)" = "$ranks" ] || fail "$model: not $ranks hashes"
    [ "$(echo "$hashes" | sort -u | wc -l)" = 1 ] ||
      fail "$model on $ranks ranks: parameters differ"
  done
  for ranks in 2 4; do
    worst=$(paste -d' ' \
      <(grep '"step"' "$model-1.json" | grep -o '"loss":[^,}]*' | cut -d: -f2) \
      <(grep '"step"' "$model-$ranks.json" | grep -o '"loss":[^,}]*' | cut -d: -f2) |
      awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > w) w = d; n++ }
           END { printf "%d %.3g", n, w }')
    echo "$model: $ranks ranks against 1: ${worst% *} steps, worst ${worst#* }"
    awk -v w="${worst#* }" -v n="${worst% *}" -v s="$steps" \
      'BEGIN { exit !(n >= s && w <= 1e-5) }' || fail "$model on $ranks ranks"
  done
done

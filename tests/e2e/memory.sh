#!/bin/bash
# Memory use is as planned: the predicted arena is the highest byte touched (the
# arena is poisoned first), no allocation of our own happens in a step after the
# first, and at most 5 % of the resident bytes above the arena have no name.
. "$(dirname "$0")/lib.sh"
cc -O1 -shared -fPIC -o count.so "$root/tests/e2e/count_allocations.c" ||
  fail "cc"
allocations() { # steps: "own libraries" of a run
  LD_PRELOAD=$work/count.so COUNT_ALLOCATIONS=$work/counted \
    $model.bundle/rank-0000 --data "$root" --quiet --no-save --steps "$1" \
    >/dev/null 2>&1
  cat counted
}
for model in mlp lenet chargpt; do
  DNN_POISON=1 "$dnnc" run "$root/models/$model.dnn" --data "$root" --json \
    --steps 4 --no-save eval_batches=2 >$model.json 2>$model.err ||
    { cat $model.err; fail $model; }
  last=$(tail -n 1 $model.json)
  number() { echo "$last" | grep -o "\"$1\":\[\?[0-9]*" | grep -o '[0-9]*$'; }
  arena=$(number arena_bytes) touched=$(number arena_touched_bytes)
  [ -n "$arena" ] && [ "$arena" = "$touched" ] ||
    fail "$model: arena $arena, touched $touched"
  peak=$(number peak_resident_bytes) other=$(number other)
  awk -v p="$peak" -v a="$arena" -v o="$other" \
    'BEGIN { exit !(p != "" && o != "" && o <= 0.05 * (p - a)) }' ||
    fail "$model: $other of $((peak - arena)) bytes are unexplained"
  "$dnnc" build "$root/models/$model.dnn" -o $model.bundle --quiet \
    eval_batches=2 || fail "$model: build"
  few=$(allocations 4) many=$(allocations 24)
  [ -n "$few" ] && [ "${few% *}" -gt 0 ] || fail "$model: nothing was counted"
  [ "${few% *}" = "${many% *}" ] ||
    fail "$model: 4 steps allocate ${few% *} times, 24 steps ${many% *} times"
  echo "$model: arena $arena = touched, $peak resident, $other unexplained;" \
    "20 steps more: 0 allocations, in libraries $((${many#* } - ${few#* }))"
done

#!/bin/bash
# Programs with scans: the emitted loop against the same steps written out, at
# every level, on poisoned memory; unrolled loops; ranks and micro-batches
# against one rank.  Kernels are compiled quickly: there are hundreds of them.
. "$(dirname "$0")/lib.sh"
folder=$root/tests/scans
train() { # name model options...
  local name=$1 model=$2
  shift 2
  DNN_POISON=1 "$dnnc" run "$folder/$model.dnn" --json --no-save \
    --quick --verify-ir "$@" >"$name.json" 2>"$name.err" ||
    { cat "$name.err"; fail "$name"; }
}
losses() { grep '"step"' "$1.json" | grep -o '"loss":[^,}]*' | cut -d: -f2; }
same() { # name name
  [ "$(losses "$1" | wc -l)" = 3 ] || fail "$1: not three losses"
  paste -d' ' <(losses "$1") <(losses "$2") | awk '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (!(d <= 2e-5)) bad = 1 }
    END { exit bad }' ||
    { paste <(losses "$1") <(losses "$2"); fail "$1 and $2 differ"; }
}
near() { # name name difference, of the largest loss
  paste -d' ' <(losses "$1") <(losses "$2") | awk -v most="$3" '
    { d = $1 - $2; if (d < 0) d = -d; if (d > off) off = d
      if ($1 > top) top = $1; if (-$1 > top) top = -$1 }
    END { exit !(NR == 3 && off <= most * top) }' ||
    { paste <(losses "$1") <(losses "$2"); fail "$1 and $2 differ"; }
}
for path in "$folder"/*.dnn; do
  model=$(basename "$path" .dnn)
  train "$model" "$model" unrolled=1
  for level in -O0 -O1 -O2; do
    train "$model$level" "$model" $level
    same "$model" "$model$level"
  done
  arena=$(field arena_bytes "$model-O2.json")
  touched=$(field arena_touched_bytes "$model-O2.json")
  [ "$arena" = "$touched" ] || fail "$model: arena $arena, touched $touched"
  for number in "bf16 6e-2" "f16 8e-3"; do
    read -r compute most <<<"$number"
    for level in -O0 -O2; do
      train "$model-$compute" "$model" $level "precision.compute=$compute"
      near "$model" "$model-$compute" "$most"
    done
  done
  echo "$model: unrolled, -O0, -O1 and -O2 agree, arena $arena; 16 bits are near"
done
# Several positions a turn are the same operations in the same order; T = 5
# leaves two over.
sed 's/^\( *\)\(.* = scan \)/\1@unroll(3)\n\1\2/' "$folder/lstm.dnn" >unroll.dnn
train plain lstm T=5
folder=. train turns unroll T=5
grep -q '@unroll' unroll.dnn && [ "$(losses plain)" = "$(losses turns)" ] ||
  fail "@unroll changes the bits"
echo "lstm: @unroll(3) gives the same bits"
has_mpi || skip "ranks, which need mpirun"
for model in gru attention outside nested carried; do
  train "$model-1" "$model" B=4
  for way in "--ranks 2" "--ranks 4" "--microbatches 2" \
    "--ranks 2 --microbatches 2"; do
    # shellcheck disable=SC2086
    train "$model-way" "$model" B=4 $way
    same "$model-1" "$model-way"
    echo "$model: $way agrees with one rank"
  done
done

# Weights in shards leave the loops gathered, or stay in them: equal losses.
# zero PLAN LINE...: writes a plan of ZeRO 3 on two ranks.
zero() {
  printf 'mesh { d = 2 }\nplan {\n  shard B over d\n  zero = 3\n  %s\n}\n' \
    "$2" >"$1.plan"
}
# in_loops MODEL PLAN: the gathers inside of scans.
in_loops() {
  "$dnnc" ir "$folder/$1.dnn" B=4 --plan "$2.plan" --after=partition \
    2>/dev/null | grep -c '^    .* = all_gather'
}
for case in "gru wh, bh, wx" "nested wh, wo, wx, scale" "attention wq, wh, wc, v"; do
  read -r model weights <<<"$case"
  zero outside ""
  zero inside "remat $weights"
  [ "$(in_loops "$model" outside)" = 0 ] || fail "$model: gathers in a scan"
  [ "$(in_loops "$model" inside)" -gt 1 ] || fail "$model: none with 'remat'"
  for plan in outside inside; do
    for level in -O0 -O2; do
      train "$model-way" "$model" B=4 --plan $plan.plan $level
      same "$model-1" "$model-way"
    done
  done
  echo "$model: weights gathered outside of scans and in them agree"
done

# A body that reads the full batch: a sum over ranks at each position.
train across-1 across
for way in "--ranks 2" "--ranks 4" "--ranks 4 -O0"; do
  # shellcheck disable=SC2086
  train across-way across $way
  same across-1 across-way
  echo "across: $way agrees with one rank"
done
"$dnnc" build "$folder/across.dnn" --microbatches 2 -o bundle 2>err &&
  fail "a position cannot wait for all micro-batches"
grep -q "across.dnn:.*needs a sum over the full batch" err || fail "$(cat err)"

#!/bin/bash
# Fifty steps of emitted f32 programs with every optimizer and schedule agree
# with the records of tests/reference/record_optimizers.py; optimizers that read
# complete tensors also on two ranks.  With every one of them two ranks hold
# equal bits.  So do programs with groups of parameters, also under plans that
# shard the update or cut the model into stages.
. "$(dirname "$0")/lib.sh"
folder="$root/tests/reference"
reference="$work/reference"
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -o "$reference" \
  "$root/tests/e2e/reference.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -fopenmp -lm -ldl -lpthread || fail "cannot compile the helper"
"$reference" write "$folder/optimizers.safetensors" first.ckpt start/ ||
  fail "no checkpoint made"

model=optimizers
check() { # case, its settings, arguments of run
  local name=$1
  shift
  rm -rf out.ckpt
  "$dnnc" run "$folder/$model.dnn" --load first.ckpt --json save=out.ckpt \
    "$@" >out.json 2>out.err || { cat out.err; fail "$name"; }
  echo "$name: $("$reference" compare "$folder/$model.safetensors" \
    out.ckpt/step-00000050 "$name/")" || fail "$name: $(cat out.err)"
}

while read -r name settings; do
  check "$name" $settings
done <"$folder/optimizers.txt"
for model in groups sgd_groups; do
  while read -r name settings; do
    check "$name" $settings
  done <"$folder/$model.txt"
done
model=optimizers

# A matrix of which a row and a column have no gradient, as the weights of an
# expert with one token have.
cat >dead.dnn <<'END'
dim B = 4, I = 3, O = 5
net dead(x: [B, I], keep: [B, O]) -> [B, O] {
  param w: [I, O] = normal(1.0)
  return dot(x * iota(x, I), w, I) * keep * iota(keep, O)
}
data rows {
  x: [B, I]    = synthetic()
  keep: [B, O] = synthetic()
}
train {
  loss      = mean(pow(dead(rows.x, rows.keep), 2), (B, O))
  optimizer = adafactor(lr = 0.01)
  steps     = 3
}
END
"$dnnc" run dead.dnn --no-save --json >out.json 2>out.err ||
  { cat out.err; fail "a row and a column without a gradient"; }

has_mpi || skip "ranks: needs mpirun"
replicas() { # name: both ranks of out.json have the same parameters
  local digests
  digests=$(grep -o '"parameters_sha256":\["[0-9a-f]*","[0-9a-f]*"\]' out.json |
    grep -o '[0-9a-f]\{64\}')
  [ "$(echo "$digests" | wc -l)" = 2 ] && [ "$(echo "$digests" | uniq | wc -l)" = 1 ] ||
    fail "$1: replicas differ: $digests"
}
while read -r name settings; do
  case $name in
  lamb_decay | lars_decay | muon_decay | adafactor_decay | ema)
    check "$name" $settings --quick --ranks 2
    ;;
  *)
    "$dnnc" run "$folder/optimizers.dnn" --load first.ckpt --json --no-save \
      --quick --ranks 2 --steps 7 $settings >out.json 2>out.err ||
      { cat out.err; fail "$name on two ranks"; }
    ;;
  esac
  replicas "$name"
done <"$folder/optimizers.txt"
# Groups of parameters under plans.
two='mesh { data = 2 } plan { shard B over data'
plans=("$two; zero = 1 }" "$two; zero = 3 }" "$two; microbatches = 2; zero = 2 }"
  'mesh { pipe = 2 } plan { microbatches = 2; cut after h[0] }'
  'mesh { pipe = 2 } plan { schedule = 1f1b; microbatches = 4; cut after h[1] }')
for i in "${!plans[@]}"; do
  echo "${plans[$i]}" | sed 's/} plan/}\nplan/' >$i.plan
  for model in groups sgd_groups; do
    read -r name settings <"$folder/$model.txt"
    check "$name" $settings --quick --plan $i.plan
  done
done

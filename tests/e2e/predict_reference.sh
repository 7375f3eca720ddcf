#!/bin/bash
# resnet50, vit_b_16 and a small GPT-2 with values from a formula, under the
# names of torchvision and Hugging Face: converted by the maps of models/, the
# predictions are within 1e-5 of what PyTorch computed in f64
# (tests/reference/torch_names.py), the same bytes on one rank and on two.
. "$(dirname "$0")/lib.sh"
"$dnnc" predict --help >help 2>&1 || skip "needs dnnc predict"
names=$work/torch_names
${CC:-cc} -std=gnu11 -O2 -D_GNU_SOURCE -I"$root" -o "$names" \
  "$root/tests/e2e/torch_names.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -lm -ldl -lpthread || fail "cannot compile the helper"
gzip -dc "$root/tests/reference/torch_names.txt.gz" |
  awk '/^== / { file = $2 ".table"; next } { print > file }' || fail "no tables"
"$names" images images.idx 2 3 224 224 || fail "images"
"$names" tokens tokens.bin 48 96 || fail "tokens"

check() { # name, map, its dims, model, arguments of predict
  local name=$1 map=$2 dims=$3 model=$root/models/$4
  shift 4
  "$names" write "$name.table" theirs.safetensors || fail "$name: cannot write"
  # shellcheck disable=SC2086
  "$dnnc" convert theirs.safetensors --map "$root/models/$map" $dims -o ours --quiet 2>err ||
    { cat err; fail "$name: convert"; }
  rm theirs.safetensors
  "$dnnc" predict "$model" --load ours -o "$name.npy" precision.compute=f32 --quiet "$@" 2>err ||
    { cat err; fail "$name: predict"; }
  "$names" close "$name.npy" "$root/tests/reference/predict_$name.npy" 1e-5 || fail "$name"
  if has_mpi; then
    "$dnnc" predict "$model" --load ours -o two.npy precision.compute=f32 --quiet --ranks 2 "$@" 2>err ||
      { cat err; fail "$name: two ranks"; }
    cmp "$name.npy" two.npy || fail "$name: two ranks predict other bytes"
  fi
}
check gpt2_small gpt2-hf.map D=8 gpt2.dnn V=96 C=32 H=4 L=3 T=16 B=2 --input x=tokens.bin
check resnet50 resnet-torchvision.map "" resnet50.dnn N=1 --input x=images.idx
check vit_b_16 vit-torchvision.map "" vit.dnn B=1 --input x=images.idx
exit 0

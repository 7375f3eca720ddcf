#!/bin/bash
# Models of torchvision and Hugging Face with values from a formula: converted
# by the maps of models/, their predictions are within 1e-5 of those of PyTorch
# in f64 (tests/reference/torch_names.py), for ResNet-50, ViT-B/16 and a small
# GPT-2 with the same bytes on one rank and on two.
. "$(dirname "$0")/lib.sh"
"$dnnc" predict --help >help 2>&1 || skip "needs dnnc predict"
names=$work/torch_names
${CC:-cc} -std=gnu11 -O2 -D_GNU_SOURCE -I"$root" -o "$names" \
  "$root/tests/e2e/torch_names.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -lm -ldl -lpthread || fail "cannot compile the helper"
gzip -dc "$root/tests/reference/torch_names.txt.gz" |
  awk '/^== / { file = $2 ".table"; next } { print > file }' || fail "no tables"
"$names" images images.idx 2 3 224 224 || fail "images"
"$names" images one.idx 1 3 224 224 || fail "images"
"$names" images large.idx 1 3 299 299 || fail "images"
"$names" tokens tokens.bin 48 96 || fail "tokens"
"$names" tokens segments.bin 48 2 || fail "segments"

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
  echo -n "$name: "
  "$names" close "$name.npy" "$root/tests/reference/predict_$name.npy" 1e-5 || fail "$name is off"
}
check_ranks() {
  check "$@"
  has_mpi || return
  "$dnnc" predict "$root/models/$4" --load ours -o two.npy precision.compute=f32 --quiet --ranks 2 "${@:5}" 2>err ||
    { cat err; fail "$1: two ranks"; }
  cmp "$1.npy" two.npy || fail "$1: two ranks predict other bytes"
}
vision() { check "$1" "$2-torchvision.map" "" "$3" N=1 --input x=one.idx "${@:4}"; }
check_ranks gpt2_small gpt2-hf.map D=8 gpt2.dnn V=96 C=32 H=4 L=3 T=16 B=2 --input x=tokens.bin
check_ranks resnet50 resnet-torchvision.map "" resnet50.dnn N=1 --input x=images.idx
check_ranks vit_b_16 vit-torchvision.map "" vit.dnn B=1 --input x=images.idx
check bert_small bert-hf.map D=8 bert.dnn --net masked V=96 C=32 H=4 F=128 L=2 T=16 B=3 \
  --input tok=tokens.bin --input seg=segments.bin
vision densenet121 densenet densenet121.dnn
vision mobilenet_v2 mobilenet_v2 mobilenet_v2.dnn
vision squeezenet1_0 squeezenet squeezenet.dnn
vision googlenet googlenet googlenet.dnn aux=true --value 'googlenet[0]'
check inception_v3 inception_v3-torchvision.map "" inception_v3.dnn N=1 --value 'inception_v3[0]' --input x=large.idx
exit 0

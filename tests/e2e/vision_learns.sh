#!/bin/bash
# Small image models learn their tasks, in a minute or two each and in fewer
# epochs than the models take to do it well.
. "$(dirname "$0")/lib.sh"
learns() { # model metric least [NAME=VALUE ...]
  "$dnnc" run "$root/models/$1.dnn" --data "$root" --no-save --json "${@:4}" \
    >out.json 2>out.err || { cat out.err; fail "$1"; }
  local got
  got=$(field "$2" out.json)
  echo "$1: $2 $got"
  awk -v g="$got" -v l="$3" 'BEGIN { exit !(g >= l) }' ||
    fail "$1: $2 is $got, not $3"
}
learns unet_shapes iou 0.95 epochs=3
learns vit_digits accuracy 0.90 epochs=32
learns resnet_mnist accuracy 0.985 epochs=5

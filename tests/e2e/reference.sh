#!/bin/bash
# Gradients of emitted f32 programs against what PyTorch computed in f64,
# recorded in tests/reference: each starts from the recorded parameters and
# makes one step of sgd with momentum, whose moment is then the gradient.
. "$(dirname "$0")/lib.sh"
reference="$work/reference"
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -o "$reference" \
  "$root/tests/e2e/reference.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -fopenmp -lm -ldl -lpthread || fail "cannot compile the helper"

check() { # model, arguments of run
  local model=$1 name
  shift
  name="$model $*"
  rm -rf first.ckpt out.ckpt
  "$reference" write "$root/tests/reference/$model.safetensors" first.ckpt ||
    fail "$name: no checkpoint made"
  "$dnnc" run "$root/tests/reference/$model.dnn" --load first.ckpt --json \
    save=out.ckpt "$@" >out.json 2>out.err || { cat out.err; fail "$name"; }
  result=$("$reference" compare \
    "$root/tests/reference/$model.safetensors" out.ckpt/step-00000001) ||
    fail "$name: $result"
  echo "$name: $result"
}

# The same from the recorded parameters on, ten steps: records ten/PATH.
ten_steps() {
  local model=$1 name
  shift
  name="$model, ten steps $*"
  rm -rf out.ckpt
  "$reference" write "$root/tests/reference/$model.safetensors" first.ckpt ||
    fail "$name: no checkpoint made"
  "$dnnc" run "$root/tests/reference/$model.dnn" --load first.ckpt --json \
    save=out.ckpt steps=10 "$@" >out.json 2>out.err || { cat out.err; fail "$name"; }
  result=$("$reference" compare \
    "$root/tests/reference/$model.safetensors" out.ckpt/step-00000010 ten/) ||
    fail "$name: $result"
  echo "$name: $result"
}

for model in chargpt_small cnn_small windows_small llama_small bert_small \
  mixtral_small switch_small enlarge_small alexnet_small vgg_small \
  resnet_small inception_small unet_small vit_small lstm_small gru_small; do
  ten_steps $model
  check $model
  check $model --disable attention --disable cse
  DNN_ONEDNN_LIB=none check $model
done
check cnn_small --microbatches 2
check mixtral_small --microbatches 2
check lstm_small --microbatches 3
ten_steps resnet_small --microbatches 2
has_mpi || skip "ranks: needs mpirun"
check cnn_small --ranks 2
ten_steps resnet_small --ranks 2
check cnn_small --ranks 4
check chargpt_small --ranks 3
check llama_small --ranks 2
check gru_small --ranks 3
ten_steps mixtral_small --ranks 2
ten_steps switch_small --ranks 2

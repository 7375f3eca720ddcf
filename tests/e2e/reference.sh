#!/bin/bash
# The models of tests/reference/records.def as emitted programs, in f32 and in
# bf16, agree with PyTorch in f64: each starts from the recorded parameters and
# makes ten steps of sgd with momentum, whose moment is the gradient after the
# first.  For bf16 it says what share of PyTorch's own errors ours are, and that
# of PyTorch's worst throw (tests/reference/README.md).
. "$(dirname "$0")/lib.sh"
reference="$work/reference"
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -o "$reference" \
  "$root/tests/e2e/reference.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -fopenmp -lm -ldl -lpthread || fail "cannot compile the helper"

check() { # model, dtype, arguments of run
  local record=$root/tests/reference/$1.safetensors
  local program=$root/tests/reference/$1.dnn name="$*" dtype=$2 first ten losses
  shift 2
  rm -rf first.ckpt out.ckpt
  "$reference" write "$record" first.ckpt || fail "$name: no checkpoint made"
  "$dnnc" run "$program" --follow-links --load first.ckpt --json save=out.ckpt steps=10 \
    save_every=1 keep=10 precision.compute="$dtype" "$@" >out.json 2>out.err ||
    { cat out.err; fail "$name"; }
  losses=$("$reference" losses "$record" out.json "$dtype") ||
    fail "$name: $losses"
  first=$("$reference" compare "$record" out.ckpt/step-00000001 first "$dtype") ||
    fail "$name: first step: $first"
  ten=$("$reference" compare "$record" out.ckpt/step-00000010 ten "$dtype") ||
    fail "$name: ten steps: $ten"
  echo "$name: first step: $first; ten: $ten; losses $losses"
}

if [ $# -gt 1 ]; then # dnnc model dtype [arguments]
  shift
  check "$@"
  exit
fi
for model in $("$reference" list); do
  check "$model" f32
  DNN_ONEDNN_LIB=none check "$model" f32 --quick
  case $model in
  chargpt_small | cnn_small | lstm_small) check "$model" bf16 ;;
  *) check "$model" bf16 --quick ;; # compiling is most of the time of this test
  esac
done
for model in bert_small chargpt_small llama_small switch_small vit_small; do
  check $model f32 --quick --disable attention --disable cse
done
check chargpt_small bf16 --quick --disable attention --disable cse
check cnn_small f32 --quick --microbatches 2
check cnn_small bf16 --quick --microbatches 2
check mixtral_small f32 --quick --microbatches 2
check lstm_small f32 --quick --microbatches 3
check resnet_small f32 --quick --microbatches 2
# Kernels share out their work among threads.
for model in chargpt_small cnn_small lstm_small; do
  OMP_NUM_THREADS=2 check $model f32
done
has_mpi || skip "ranks: needs mpirun"
check cnn_small f32 --quick --ranks 4
check resnet_small f32 --quick --ranks 2
check chargpt_small f32 --quick --ranks 3
check llama_small f32 --quick --ranks 2
check llama_small bf16 --quick --ranks 2
check gru_small f32 --quick --ranks 3
check gnmt_small f32 --quick --ranks 3
check awdlm_small f32 --quick --ranks 3
check amoebanet_small f32 --quick --ranks 2
check mixtral_small f32 --quick --ranks 2
check switch_small f32 --quick --ranks 2

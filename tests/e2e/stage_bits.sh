#!/bin/bash
# Stages on ranks of their own train to the bits of the same stages on one rank:
# the same parameters after 20 steps, in f32 and with one thread a rank.  In some
# pairs the norm of all stages clips gradients, in some dropout draws numbers in
# several stages.  Usage: stage_bits.sh DNNC [WORD]: pairs whose model has the word.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "no mpirun"
word=${2:-}
export OMP_NUM_THREADS=1
systems=$root/benchmarks/systems

# digest PLAN ARGUMENTS...: trains, and prints the digests that its ranks have.
digest() {
  local plan=$1
  shift
  "$dnnc" run --quick --json "$@" --plan "$plan" --steps 20 --no-save >out 2>err </dev/null ||
    { cat err >&2; return 1; }
  grep -o '"parameters_sha256":\[[^]]*' out | cut -d[ -f2 | tr , '\n' | sort -u
}

# pair MODEL OVERRIDES SCHEDULE MICROBATCHES STAGE...
pair() {
  local model=$1 overrides=$2 n=0 line apart together
  case $model in *$word*) ;; *) return ;; esac
  printf 'plan {\n  schedule = %s\n  microbatches = %s\n' "$3" "$4" >apart.plan
  cp apart.plan together.plan
  shift 4
  for line; do
    printf '  stage %d: %s on %d\n' $n "$line" $n >>apart.plan
    printf '  stage %d: %s on 0\n' $n "$line" >>together.plan
    n=$((n + 1))
  done
  echo '}' | tee -a apart.plan >>together.plan
  # shellcheck disable=SC2086 # overrides are words
  {
    apart=$(digest apart.plan "$model" $overrides) || fail "$model does not train on $n ranks"
    together=$(digest together.plan "$model" $overrides) || fail "$model does not train on one rank"
  }
  [ -n "$apart" ] && [ "$apart" = "$together" ] ||
    fail "$model $overrides: other bits on $n ranks: $apart, not $together"
  pairs=$((pairs + 1))
}
pairs=0

# Models with dropout that read data of their own.
sed 's/relu(linear\[H1 -> H2\](x))/dropout(&, 0.2)/' "$systems/mlp.dnn" >mlp_dropout.dnn
cp "$root/models/lib.dnn" .
sed 's/csv([^)]*0\.\.63)/synthetic()/; s/csv([^)]*)/synthetic(K)/; /eval = /d' \
  "$root/models/vit_digits.dnn" >vit_dropout.dnn
sed 's/bytes([^)]*)/synthetic(V)/; /eval = /d; /eval_every/d; /^sample/,$d' \
  "$root/models/charlstm.dnn" >charlstm_dropout.dnn

# clip
pair "$systems/mlp.dnn" clip=0.1 1f1b 4 'linear[0], x[0]' 'linear[1..2], x[1]'
pair "$systems/mlp.dnn" clip=0.1 naive 2 'linear[0], x[0]' 'linear[1], x[1]' 'linear[2]'
pair "$root/models/reverse.dnn" 'B=8 C=16 clip=0.1' 1f1b 4 'read, lstm' 'write, "place", w1, w2, b1, b2, wo'
# dropout
pair mlp_dropout.dnn '' fthenb 4 'linear[0], x[0]' 'linear[1], x[1]' 'linear[2]'
pair vit_dropout.dnn 'B=8 C=16 L=2' gpipe 4 'linear[0], pos, block[0]' 'block[1]' 'norm, linear[1]'
pair charlstm_dropout.dnn 'B=4 T=8 V=27 E=8 C=16' 1f1b 2 'emb, lstm' 'linear'
# convolutions, states, skips over stages, experts
pair "$systems/lenet.dnn" '' fthenb 4 'conv2d[0], x[0]' 'conv2d[1], x[1]' 'linear[0..1]'
pair "$systems/resnet.dnn" 'N=8 group=2' 1f1b 4 'conv_bn, basic[0]' 'basic[1], linear'
pair "$root/models/unet.dnn" 'width=2 depth=2 N=4 side=44 out=4' 1f1b 4 \
  'level.twice[0]' 'level.level.twice[0]' 'level.level.level' 'level.level.twice[1], level.twice[1]'
pair "$systems/lenet.dnn" 'optimizer=adamw(lr=0.003)' naive 1 'conv2d[0], x[0]' 'conv2d[1], x[1], linear[0]' 'linear[1]'
pair "$systems/moe.dnn" 'optimizer=sgd(lr=0.1)' gpipe 2 'wte, wpe, moe_block[0]' 'moe_block[1]'

[ $pairs -gt 0 ] || fail "no pair has '$word'"

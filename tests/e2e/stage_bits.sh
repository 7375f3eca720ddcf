#!/bin/bash
# Stages on ranks of their own train to the bits of the same stages on one rank:
# the same parameters after 20 steps, in f32 and with one thread a rank.  In some
# pairs the norm of all stages clips gradients, in some dropout draws numbers in
# several stages, in some the norm passes a rank twice.  Usage: stage_bits.sh DNNC [WORD]: pairs whose model has the word.
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

# compare MODEL OVERRIDES NAME: apart.plan and together.plan.
compare() {
  local model=$1 overrides=$2 apart together
  # shellcheck disable=SC2086 # overrides are words
  {
    apart=$(digest apart.plan "$model" $overrides) || fail "$model does not train under $3"
    together=$(digest together.plan "$model" $overrides) || fail "$model does not train on one rank"
  }
  [ -n "$apart" ] && [ "$apart" = "$together" ] ||
    fail "$model $overrides: other bits under $3: $apart, not $together"
  pairs=$((pairs + 1))
}

# pair MODEL OVERRIDES SCHEDULE MICROBATCHES STAGE...
pair() {
  local model=$1 overrides=$2 n=0 line
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
  compare "$model" "$overrides" "$n stages"
}

# placed MODEL OVERRIDES SCHEDULE MICROBATCHES LINE...: lines with ranks, `stage` or
# `place`, and others.  On one rank stages follow each other as under 1f1b, or zbh1
# where weight gradients are kernels apart.
placed() {
  local model=$1 overrides=$2 one=1f1b
  case $3 in z* | v* | d*) one=zbh1 ;; esac
  case $model in *$word*) ;; *) return ;; esac
  printf 'plan {\n  schedule = %s\n  microbatches = %s\n' "$3" "$4" >apart.plan
  printf 'plan {\n  schedule = %s\n  microbatches = %s\n' "$one" "$4" >together.plan
  printf '  %s\n' "${@:5}" '}' | sed 's/^  }/}/' | tee -a apart.plan |
    sed '/ over /d; /^  place/d; s/ on .*/ on 0/' >>together.plan
  compare "$model" "$overrides" "$3, ${*:5}"
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

# Parameters in an order in which the norm, which clips, passes a rank twice: stages in
# turn and on a V, a table of the last stage that comes first, meshes of their own,
# branches.
placed "$systems/gpt.dnn" 'L=4 clip=0.1' 'interleaved(v = 2)' 4 'stage 0: wte, wpe, block[0] on 0' \
  'stage 1: block[1] on 1' 'stage 2: block[2] on 0' 'stage 3: block[3], norm on 1'
placed vit_dropout.dnn 'B=8 C=16 L=2 clip=0.1' zbv 4 'stage 0: linear[0], pos on 0' 'stage 1: block[0] on 1' \
  'stage 2: block[1] on 1' 'stage 3: norm, linear[1] on 0'
placed "$systems/gpt.dnn" 'clip=0.1' zbh1 4 'stage 0: wpe, block[0] on 0' 'stage 1: block[1], norm, wte on 1'
placed "$systems/mlp.dnn" clip=0.1 1f1b 4 'stage 0: linear[0], x[0] on 0..1 as (tensor = 2)' \
  'stage 1: linear[1], x[1] on 2' 'stage 2: linear[2] on 0..1 as (tensor = 2)' 'shard H1 over tensor'
placed "$root/models/two_tower.dnn" 'B=8 D=6 F=10 users=20 items=12 tags=5 clip=0.1' 1f1b 2 'place item_tower on 1'
placed "$systems/inception.dnn" 'clip=0.1' 1f1b 2 'place mixed[0..1].unit[1..4] on 1'
placed "$systems/resnet.dnn" 'N=8 group=2 clip=0.1' 'zb1p(v = 2)' 4 'stage 0: conv_bn on 0' 'stage 1: basic[0] on 1' \
  'stage 2: basic[1] on 0' 'stage 3: linear on 1'

# Replicas of a pipeline on two islands, whose gradients are added up across the
# border, against the plan without islands: the mesh in both orders, stages with
# meshes of their own, sums in buckets.
islands() { # MESH LINE...
  local mesh=$1
  case $systems/mlp.dnn in *$word*) ;; *) return ;; esac
  printf '%s\nplan {\n  schedule = 1f1b\n  microbatches = 2\n' "$mesh" >together.plan
  printf '  %s\n' "${@:2}" >>together.plan
  cp together.plan apart.plan
  echo '  sync = hierarchical over island' >>apart.plan
  echo '}' | tee -a together.plan >>apart.plan
  compare "$systems/mlp.dnn" 'B=48 clip=0.1' "hierarchical sums, $mesh ${*:2}"
}
islands 'mesh { island = 2; pipe = 2 }' 'shard B over island' 'cut after x[0]'
islands 'mesh { pipe = 2; island = 2 }' 'shard B over island' 'cut after x[0]' 'bucket = 1KB'
islands '' 'stage 0: linear[0], x[0] on 0..1 as (island = 2)' 'stage 1: linear[1..2] on 2..3 as (island = 2)'
# Two ranks of an island share the batch: their sums are made first, so they may round
# otherwise, and `verify` compares on integers that do not.
cat >inside.plan <<'END'
mesh { island = 2; pipe = 2; data = 2 }
plan {
  shard B over (island, data)
  schedule = 1f1b
  microbatches = 2
  cut after x[0]
  sync = hierarchical over island
}
END
"$dnnc" verify "$systems/mlp.dnn" B=48 --plan inside.plan >out 2>&1 || { cat out; fail "islands of replicas"; }

[ $pairs -gt 0 ] || fail "no pair has '$word'"

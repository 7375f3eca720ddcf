#!/bin/bash
# LeNet, GPT and a model with batch normalisation whose stages keep versions of their parameters train to the weights of a reference, whose
# gradients come from a program of one rank without stages that is given the mixed weights.  LeNet has equal
# bits; versions_models.py says why the others have not.  A reference whose stage 0 reads older or newer versions
# differs, and so does one with other states.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
export OMP_NUM_THREADS=1
reference() { python3 "$root/tests/e2e/versions_models.py" "$@"; }
mkdir one
sed -e 's/\(x: \[N, C:1, Y:20, X:20\]\) = synthetic()/\1 = npy("x.npy")/' \
  -e 's/= synthetic(K)/= npy("y.npy")\n  order = sequential/' -e 's/sgd(.*/sgd(lr = 1.0 \/ 32, momentum = 0.5)/' \
  -e 's/  steps .*/  epochs = 1/' "$root/benchmarks/systems/lenet.dnn" >lenet.dnn
sed -e 's/return dot(norm(x), wte, C) .*/param head: [V, C] = normal(0.02)\n  return dot(norm(x), head, C)/' \
  -e 's/data text {.*/data text {\n  x: i32[B, T] = npy("x.npy")\n  y: i32[B, T] = npy("y.npy")\n  order = sequential\n}/' \
  -e 's/adamw(.*/sgd(lr = 1.0 \/ 32, momentum = 0.5)/' -e '/ clip /d' -e 's/  steps .*/  epochs = 1/' \
  "$root/benchmarks/systems/gpt.dnn" >gpt.dnn

replicas= shared=
prepare() { # model micro-batches [shared]: then the program of one rank computes one of them
  microbatches=$2 shared=${3:+$2}
  rm -rf ./*.ckpt program
  reference data "$1" 1 one $shared && reference data "$1" 12 . || fail "the data of $1"
  printf 'plan {\n  microbatches = %d\n}\n' $(($2 / ${shared:-1})) >one.plan
  (cd one && sed "s/^dim \([BN]\) = 8/dim \1 = $((8 / ${shared:-1}))/" "../$1.dnn" >"$1.dnn" &&
    "$dnnc" build "$1.dnn" --plan ../one.plan -o ../program "save=$work/one.ckpt" --quiet) || fail "one rank"
  program/run --steps 1 --data one >/dev/null 2>err </dev/null || { cat err; fail "a step of one rank"; }
  reference first one.ckpt || fail "first parameters"
}

train() { # model schedule parts line...; $replicas of the stages, which lines name then
  local words=()
  case $2 in *vertical*) words=(vertical) ;; 2bw) words=(2bw) ;; esac
  [ ! "$shared" ] || words+=("shared=$shared")
  if [ "$replicas" ]; then words+=("replicas=$replicas"); else printf 'mesh { pipe = 3 }\n'; fi >"$1.plan"
  printf 'plan {\n  schedule = %s\n  microbatches = %d\n' "$2" "$microbatches" >>"$1.plan"
  printf '  %s\n' "${@:4}" >>"$1.plan"
  echo '}' >>"$1.plan"
  rm -rf made.ckpt
  "$dnnc" run "$1.dnn" --plan "$1.plan" --load init.safetensors --steps 12 save=made.ckpt save_every=7 --json \
    >log 2>err </dev/null || { cat err; fail "$1 under $2"; }
  reference check "$1" program made.ckpt log "$3" 12 7 "${words[@]}" || fail "$1 under $2"
  for shift in older newer; do
    reference check "$1" program made.ckpt log "$3" 12 7 "${words[@]}" $shift >differs && fail "$1, $2, $shift"
    grep -q '^loss of minibatch' differs || { cat differs; fail "$1, $2, $shift: what differs"; }
  done
  echo "$1 under $2${replicas:+, replicas $replicas}: $([ "$1" = lenet ] && echo equal bits || echo close)"
}

lenet() { # schedule
  train lenet "$1" 'conv2d[0];conv2d[1];linear' 'stage 0: conv2d[0]' 'stage 1: conv2d[1]' \
    'stage 2: linear[0], linear[1]'
}

prepare lenet 4
lenet 2bw
prepare lenet 4 shared
replicas=1,2
train lenet 2bw 'conv2d[0];conv2d[1],linear' 'stage 0: conv2d[0] on 0' 'stage 1: conv2d[1], linear[0], linear[1] on 1..2'
replicas=2,2,1
train lenet 2bw 'conv2d[0];conv2d[1];linear' 'stage 0: conv2d[0] on 0..1' 'stage 1: conv2d[1] on 2..3' \
  'stage 2: linear[0], linear[1] on 4'
cp lenet.plan shared.plan
prepare lenet 1
train lenet pipedream 'conv2d[0];conv2d[1];linear' 'stage 0: conv2d[0] on 0..1' 'stage 1: conv2d[1] on 2..3' \
  'stage 2: linear[0], linear[1] on 4'
cp lenet.plan replicas.plan
replicas=
lenet pipedream
lenet 'pipedream(vertical = true)'

# A batch whose data are wrong, and one that is not finite, end the run on all ranks, without its results.  Where
# all stages run two batches behind, the fourth batch is the first to read what an update has made.
printf '\143' | dd of=y.npy bs=1 seek=$(($(stat -c %s y.npy) - 4 * 8 * 6)) conv=notrunc 2>/dev/null
fails() { # plan step-that-is-not-finite
  timeout -k 5 60 "$dnnc" run lenet.dnn --plan "$1" --steps 12 --no-save --json >log 2>err </dev/null
  [ $? = 1 ] && grep -q "'y.npy', record 48: 'd.y' is 99" err || { cat err; fail "wrong data"; }
  [ "$(field step log)" = 6 ] || { cat log; fail "steps before wrong data"; }
  timeout -k 5 60 "$dnnc" run lenet.dnn 'optimizer=sgd(lr=1e30)' --plan "$1" --steps 12 --no-save --json \
    >log 2>err </dev/null
  [ $? = 1 ] && grep -q "error: step $2: the \(loss\|gradient norm\) is not finite in stage" err || { cat err; fail "not finite"; }
  [ "$(grep -c '"loss"' log)" = $(($2 - 1)) ] || { cat log; fail "steps before one that is not finite"; }
}
fails lenet.plan 4
fails replicas.plan 1 # the mean of the first two batches
fails shared.plan 3   # the first to read the first update
echo "wrong data and results that are not finite end the run"
gpt() { # schedule
  train gpt "$1" 'wte,wpe,block[0];block[1].attn,block[1].norm[0];block[1].mlp,block[1].norm[1],head,norm' \
    'cut after block[0]' 'cut after block[1].attn'
}

prepare gpt 1
gpt pipedream
gpt 'pipedream(vertical = true)'
prepare gpt 4
gpt 2bw
replicas=2,2,1
train gpt 2bw 'wte,wpe,block[0];block[1].attn,block[1].norm[0];block[1].mlp,block[1].norm[1],head,norm' \
  'stage 0: wte, wpe, block[0] on 0..1' 'stage 1: block[1].attn, block[1].norm[0] on 2..3' \
  'stage 2: block[1].mlp, block[1].norm[1], head, norm on 4'
replicas=

# ---- states ----

cat >norms.dnn <<'END'
dim B = 8, P = 6, H = 5, K = 3
layer normed[I -> O](x: [B, I]) -> [B, O] {
  param w: [I, O] = normal(0.5)
  param gamma: [O] = ones
  param beta: [O] = zeros
  state mean: [O] = zeros
  state var: [O] = ones
  return relu(batchnorm(dot(x, w, I), B, mean, var) * gamma + beta)
}
net small(x: [B, P]) -> [B, K] {
  x = normed[P -> H](x)
  x = normed[H -> H](x)
  param v: [H, K] = normal(0.5)
  return dot(x, v, H)
}
data d {
  x: [B, P] = npy("x.npy")
  y: i32[B] = npy("y.npy")
  order = sequential
}
train {
  loss      = cross_entropy(small(d.x), d.y, K)
  optimizer = sgd(lr = 1.0 / 32, momentum = 0.5)
  epochs    = 1
}
END
norms() { # schedule mistake line...: a reference with the mistake has other states
  local words=()
  [ "$1" != 2bw ] || words=(2bw)
  train norms "$1" 'normed[0];normed[1];v' "${@:3}"
  reference check norms program made.ckpt log 'normed[0];normed[1];v' 12 7 ${replicas:+replicas=$replicas} "${words[@]}" "$2" >differs &&
    fail "norms, $1, $2"
  grep -q '^normed\[[01]\]\.\(mean\|var\): ' differs || { cat differs; fail "norms, $1, $2: what differs"; }
  "$dnnc" verify norms.dnn --plan norms.plan >out 2>err || { cat out err; fail "norms, $1: verify"; }
}
prepare norms 1
norms pipedream stale 'stage 0: normed[0]' 'stage 1: normed[1]' 'stage 2: v'
replicas=2,2,1
norms pipedream fewer 'stage 0: normed[0] on 0..1' 'stage 1: normed[1] on 2..3' 'stage 2: v on 4'
replicas=
# A state has one version: the statistics of all micro-batches of a batch make the next one.
sed -i 's/B, mean, var)/B, mean, var, group = 2)/' norms.dnn
prepare norms 4
norms 2bw stale 'stage 0: normed[0]' 'stage 1: normed[1]' 'stage 2: v'
replicas=2,2,1
norms 2bw stale 'stage 0: normed[0] on 0..1' 'stage 1: normed[1] on 2..3' 'stage 2: v on 4'

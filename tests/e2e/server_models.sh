#!/bin/bash
# LeNet and GPT with servers that answer without waiting, or with a staleness of 1, train to the weights of a reference
# that replays the logs of the servers.  Its gradients come from a program of one rank whose batch is the share of a
# worker.  So are statistics of batchnorm, `clip` and counts of `ignore`.  LeNet has equal bits; others are close, as in
# versions_models.py.  A reference that reads other parameters differs.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
export OMP_NUM_THREADS=1
steps=6
mkdir one
sed -e 's/\(x: \[N, C:1, Y:20, X:20\]\) = synthetic()/\1 = npy("x.npy")/' \
  -e 's/= synthetic(K)/= npy("y.npy")\n  order = sequential/' -e 's/sgd(.*/sgd(lr = 1.0 \/ 32, momentum = 0.5)/' \
  -e 's/  steps .*/  epochs = 1/' "$root/benchmarks/systems/lenet.dnn" >lenet.dnn
sed -e 's/return dot(norm(x), wte, C) .*/param head: [V, C] = normal(0.02)\n  return dot(norm(x), head, C)/' \
  -e 's/data text {.*/data text {\n  x: i32[B, T] = npy("x.npy")\n  y: i32[B, T] = npy("y.npy")\n  order = sequential\n}/' \
  -e 's/adamw(.*/sgd(lr = 1.0 \/ 32, momentum = 0.5)/' -e '/ clip /d' -e 's/  steps .*/  epochs = 1/' \
  "$root/benchmarks/systems/gpt.dnn" >gpt.dnn

prepare() { # model dim workers
  rm -rf ./*.ckpt program
  python3 "$root/tests/e2e/versions_models.py" data "$1" 1 one || fail "the data of $1"
  python3 "$root/tests/e2e/versions_models.py" data "$1" $steps . || fail "the data of $1"
  (cd one && cp "../$1.dnn" . && "$dnnc" build "$1.dnn" "$2=$((8 / $3))" -o ../program "save=$work/one.ckpt" --quiet) ||
    fail "one rank"
  program/run --steps 1 --data one >/dev/null 2>err </dev/null || { cat err; fail "a step of one rank"; }
  python3 "$root/tests/e2e/versions_models.py" first one.ckpt || fail "first parameters"
}

train() { # model workers servers staleness
  printf 'mesh { data = %d }\nplan { sync = server(ranks = %d..%d, staleness = %s) }\n' "$2" "$2" $(($2 + $3 - 1)) "$4" \
    >"$1.plan"
  rm -rf made.ckpt logs
  "$dnnc" run "$1.dnn" --plan "$1.plan" --load init.safetensors save=made.ckpt --json --server-log logs \
    >log 2>err </dev/null || { cat err; fail "$* does not train"; }
  python3 "$root/tests/e2e/server_models.py" check "$1" program made.ckpt log logs "$2" $steps >verdict ||
    { cut -c1-300 verdict; fail "$*"; }
  python3 "$root/tests/e2e/server_models.py" check "$1" program made.ckpt log logs "$2" $steps newest >differs &&
    fail "$*: newest parameters"
  echo "$1, $2 workers, $3 servers, staleness $4: $([ "$1" = lenet ] && echo equal bits || echo close)"
}

prepare lenet N 2
train lenet 2 2 none
prepare lenet N 4
train lenet 4 3 1
prepare gpt B 2
train gpt 2 1 none
# Each server has rows of the two tables, which have more than 1.3 times the mean.
sed -i 's/V = 48/V = 2001/' gpt.dnn
prepare gpt B 2
train gpt 2 3 none
[ "$(grep -c '# parameter .* rows' logs/server-2.log)" = 2 ] || fail "no divided tables"
cat >norms.dnn <<'END'
dim B = 8, P = 6, H = 5, K = 3
net small(x: [B, P]) -> [B, K] {
  param w: [P, H] = normal(0.5)
  param v: [H, K] = normal(0.5)
  param gamma: [H] = ones
  param beta: [H] = zeros
  state mean: [H] = zeros
  state var: [H] = ones
  h = batchnorm(dot(x, w, P), B, mean, var) * gamma + beta
  return dot(relu(h), v, H)
}
data d {
  x: [B, P] = npy("x.npy")
  y: i32[B] = npy("y.npy")
  order = sequential
}
train {
  loss      = cross_entropy(small(d.x), d.y, K, ignore = 0)
  optimizer = sgd(lr = 1.0 / 32, momentum = 0.5)
  clip      = 0.25
  epochs    = 1
}
END
prepare norms B 2
train norms 2 2 1
grep -q '^# state var$' logs/server-1.log || fail "no state on server 1"
# Without clip it differs.
mv made.ckpt clipped
sed -i '/ clip /d' norms.dnn
prepare norms B 2
python3 "$root/tests/e2e/server_models.py" check norms program clipped log logs 2 $steps >differs 2>&1 &&
  fail "clip changes nothing"
grep -q "clock\|momentum" differs || { cat differs; fail "what differs without clip"; }

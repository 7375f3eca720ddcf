#!/bin/bash
# Ranks that must be equal are: a rank of another build, or with other options,
# is refused before the first step, and replicas that a fault of memory has made
# differ are found at the next save, evaluation or end, and never saved.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
cat >marked.dnn <<'M'
dim B = 12, A = 2048
net m(x: [B, A]) -> [] {
  param first: [A] = normal(0.1)
  param mark: [A] = ones
  return mean(x * mark * x * first)
}
data d { x: [B, A] = synthetic(); eval = 24 }
train { loss = m(d.x); optimizer = sgd(lr = 0); steps = 100000; eval_every = 0; save = "marked.ckpt" }
M
cc -O1 -shared -fPIC -o flip.so "$root/tests/e2e/flip_bit.c" -lpthread ||
  fail "flip_bit.c does not compile"
build() { # bundle, arguments
  "$dnnc" build marked.dnn -o "$@" --quiet || fail "build $*"
}

# ---- another build, other options ----

build two.bundle --ranks 2
build seed.bundle --ranks 2 seed=7
build size.bundle --ranks 2 A=1024
build three.bundle --ranks 3
mixed() { # bundle of rank 1, expected words
  rm -rf mixed.bundle && cp -r two.bundle mixed.bundle
  rm mixed.bundle/rank-0001 && cp "$1/rank-0001" mixed.bundle/
  mixed.bundle/run --no-save --steps 3 --json >mixed.json 2>mixed.err
  code=$?
  [ $code = 1 ] || { cat mixed.err; fail "$1: exit $code"; }
  shift
  for words in "$@"; do
    grep -qE -- "$words" mixed.err || { cat mixed.err; fail "no '$words'"; }
  done
  [ ! -s mixed.json ] || fail "$1: a step was made"
}
mixed seed.bundle \
  '^error: ranks 0 and 1 do not run the same: program [0-9a-f]{16} and [0-9a-f]{16}, seed 1 and 7' \
  '^help: start all ranks from one bundle, with the same options$'
mixed size.bundle 'arena bytes [0-9]+ and [0-9]+, parameters 4096 and 2048, model [0-9a-f]{32} and [0-9a-f]{32}'
mixed three.bundle 'this program is for 3 ranks, but 2 were started'
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun -q --oversubscribe -n 1 two.bundle/rank-0000 --no-save --steps 3 : \
  -n 1 two.bundle/rank-0001 --no-save --steps 4 --seed 5 >mixed.json 2>mixed.err
[ $? = 1 ] || { cat mixed.err; fail "other options: not exit 1"; }
grep -q 'program \([0-9a-f]*\) and \1, seed 1 and 5, --steps 3 and 4$' mixed.err ||
  { cat mixed.err; fail "other options are not named"; }

# ---- replicas that differ ----

flips() { # bundle, rank: its memory will fail when the file `flip` appears
  rm -rf flip.bundle && cp -r "$1" flip.bundle
  name=$(printf 'rank-%04d' "$2")
  mv "flip.bundle/$name" flip.bundle/real
  printf '#!/bin/bash\nLD_PRELOAD=%s FLIP_BIT=%s exec -a "$0" %s "$@"\n' \
    "$work/flip.so" "$work/flip" "$work/flip.bundle/real" >"flip.bundle/$name"
  chmod +x "flip.bundle/$name"
}
starts() { # arguments of run; until a checkpoint, or the 200th step, is there
  rm -rf marked.ckpt flip
  flip.bundle/run --json "$@" >run.json 2>run.err &
  pid=$!
  for _ in $(seq 600); do
    [ -s marked.ckpt/latest ] && return
    [ "$(grep -c '"step"' run.json)" -ge 200 ] && return
    kill -0 $pid 2>/dev/null || break
    sleep 0.05
  done
  cat run.err
  fail "it did not get going"
}
breaks() {
  : >flip
  for _ in $(seq 600); do
    [ -e flip ] || return
    sleep 0.05
  done
  fail "no bit was flipped"
}
ends() { # what, expected words
  wait $pid
  code=$?
  [ $code = 4 ] || { cat run.err; fail "$1: exit $code, not 4"; }
  grep -qE "$2" run.err || { cat run.err; fail "$1: no '$2'"; }
  grep -qE 'rank.*instruction|mpirun' run.err && { cat run.err; fail "$1: too much talk"; }
  grep -E '^fault' run.err
}
saved() { grep -c . marked.ckpt/latest; }

build save.bundle --ranks 2 save_every=50
flips save.bundle 1
starts
breaks
ends "a save" "^fault: replicas differ after step [0-9]+: 'mark' of rank 1 \(xxh3 [0-9a-f]{16}, that of rank 0 is [0-9a-f]{16}\)$"
grep -qE '^help: no checkpoint of it was written; continue from step [0-9]+ with --resume; test the memory of the machine of rank 1, and of that of rank 0$' run.err ||
  { cat run.err; fail "no help"; }
step=$(grep -oE 'after step [0-9]+' run.err | grep -oE '[0-9]+')
latest=$(sed 's/step-0*//' marked.ckpt/latest)
[ "$latest" -lt "$step" ] && [ ! -e "marked.ckpt/step-$(printf %08d "$step")" ] ||
  fail "replicas that differ were saved"
save.bundle/run --json --resume --steps $((latest + 3)) >again.json 2>again.err ||
  { cat again.err; fail "does not resume"; }

build eval.bundle --ranks 2 eval_every=50 save_every=0
flips eval.bundle 0
starts
breaks
ends "an evaluation" "'mark' of rank 1 "
[ ! -e marked.ckpt/latest ] || fail "replicas that differ were saved"

# After SIGTERM, and of three ranks the odd one is named.
build term.bundle --ranks 3 save_every=0
flips term.bundle 0
starts
breaks
kill -TERM $pid
ends "SIGTERM" "'mark' of rank 0 \(xxh3 [0-9a-f]{16}, that of rank 1 is "
grep -q '; test the memory of the machine of rank 0$' run.err || { cat run.err; fail "no help"; }
[ ! -e marked.ckpt/latest ] || fail "replicas that differ were saved"

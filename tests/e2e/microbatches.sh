#!/bin/bash
# Tables hold a micro-batch once: those of 96 micro-batches are at most 1.2 times
# those of 16, and both train as one micro-batch does, in training and in an
# evaluation, on one rank and on two.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
model="$root/benchmarks/systems/gpt.dnn L=1 B=192 eval_batches=1"

# make NAME ARGUMENTS...: builds a bundle, makes three steps and writes its losses.
make() {
  local name=$1
  shift
  "$dnnc" build $model --quick --keep-source -o "$name.bundle" "$@" >out 2>&1 ||
    { cat out; fail "$name is not built"; }
  "$name.bundle/run" --steps 3 --no-save --json >"$name.json" 2>err ||
    { cat err; fail "$name does not train"; }
}
bytes() { wc -c <"$1.bundle/source/tables.bin"; }
# compare NAME: losses and norms are those of `whole`.
compare() {
  local key
  for key in loss norm validation_loss; do
    paste <(grep -o "\"$key\":[^,}]*" whole.json) <(grep -o "\"$key\":[^,}]*" "$1.json")
  done | sed 's/"[a-z_]*"://g' | while read -r wanted is; do
    [ "$wanted" = null ] && [ "$is" = null ] && continue
    close "$wanted" "$is" 1e-5 || fail "$1: $is, not $wanted"
  done || exit 1
}

make whole
make m16 --microbatches 16
make m96 --microbatches 96
compare m16
compare m96
[ $(($(bytes m96) * 10)) -le $(($(bytes m16) * 12)) ] ||
  fail "tables grow with micro-batches: $(bytes m16) bytes, then $(bytes m96)"
has_mpi || skip "ranks: needs mpirun"
make ranks --ranks 2 --microbatches 48
compare ranks

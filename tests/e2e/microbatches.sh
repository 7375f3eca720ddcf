#!/bin/bash
# Tables hold a micro-batch once: those of 96 micro-batches are at most 1.2 times
# those of 16, and both train as one micro-batch does, on one rank and on two,
# also where random numbers know their place in the batch.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
gpt="$root/benchmarks/systems/gpt.dnn L=1 B=192"

# make NAME ARGUMENTS...: builds a bundle, makes three steps and writes its losses.
make() {
  local name=$1
  shift
  "$dnnc" build --quick --keep-source -o "$name.bundle" "$@" >out 2>&1 ||
    { cat out; fail "$name is not built"; }
  "$name.bundle/run" --steps 3 --no-save --json >"$name.json" 2>err ||
    { cat err; fail "$name does not train"; }
}
bytes() { wc -c <"$1.bundle/source/tables.bin"; }
numbers() { grep -o '"\(loss\|norm\)":[^,}]*' "$1.json" | cut -d: -f2; }
# compare NAME NAME: losses and norms of the second are those of the first.
compare() {
  local wanted is
  [ "$(numbers "$1" | wc -l)" = 7 ] || fail "$1 has other lines"
  paste <(numbers "$1") <(numbers "$2") | while read -r wanted is; do
    close "$wanted" "$is" 1e-5 || fail "$2: $is, not $wanted"
  done || exit 1
}

make whole $gpt
make m16 $gpt --microbatches 16
make m96 $gpt --microbatches 96
compare whole m16
compare whole m96
[ $(($(bytes m96) * 10)) -le $(($(bytes m16) * 12)) ] ||
  fail "tables grow with micro-batches: $(bytes m16) bytes, then $(bytes m96)"
cp "$root/tests/e2e/dropout.dnn" .
make dropout dropout.dnn
make dropout4 dropout.dnn --microbatches 4
compare dropout dropout4
has_mpi || skip "ranks: needs mpirun"
make ranks $gpt --ranks 2 --microbatches 48
compare whole ranks
make dropouts dropout.dnn --ranks 2 --microbatches 3
compare dropout dropouts

#!/bin/bash
# Every step of docs/tutorial.md, in order, as a reader runs it.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/page.bash"
has_mpi || skip "no mpirun"
# Scratch of oneDNN, a part of the arena, depends on the instructions of the processor.
export ONEDNN_MAX_CPU_ISA=AVX2
cp -r "$root/data" .
PATH="$(dirname "$dnnc"):$PATH"
try_page "$root/docs/tutorial.md"
grep -A 5 '^```console example' new.md | grep -q '^ma' || fail "sample does not begin with its prompt"
[ "$(grep -c '^\$ ' new.md)" -ge 20 ] || fail "too few commands"

#!/bin/bash
# Every step of docs/tutorial.md, in order, as a reader runs it.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/page.bash"
has_mpi || skip "no mpirun"
cp -r "$root/data" .
PATH="$(dirname "$dnnc"):$PATH"
try_page "$root/docs/tutorial.md"
grep -A 5 '^```console example' new.md | grep -q '^ma' || fail "sample does not begin with its prompt"
[ "$(grep -c '^\$ ' new.md)" -ge 20 ] || fail "too few commands"

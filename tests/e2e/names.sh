#!/bin/bash
# Names that look like options or control a terminal do no harm, nor do a
# timeline into a pipe and a save without file descriptors.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
cp "$root/models/mlp.dnn" ./-m.dnn
small="H1=16 H2=8 eval_batches=1"

"$dnnc" build ./-m.dnn $small --quiet 2>log || fail "a model whose name begins with -"
[ -x ./-m.bundle/rank-0000 ] || fail "no bundle of that name"
"$dnnc" build ./-m.dnn $small --quiet --output -b 2>log || fail "such a bundle"
[ -x ./-b/run ] || fail "no such bundle"
if has_mpi; then
  "$dnnc" run ./-m.dnn $small --quiet --ranks 2 --steps 2 --no-save \
    --output -r --data "$root" >log 2>&1 || { cat log; fail "two such ranks"; }
fi

# No byte of a name reaches the terminal as an escape sequence.
esc=$'\033[31m'
printf 'dim B = 2\nnet f(x: [B]) -> [B] { return y }\n' >"red$esc.dnn"
for words in "check red$esc.dnn" "check no$esc.dnn" "check ./-m.dnn no$esc" \
  "check ./-m.dnn --no$esc" "list no$esc" "show no$esc" \
  "ir ./-m.dnn --after no$esc" "ir ./-m.dnn --entry no$esc" \
  "build ./-m.dnn --target no$esc" "build ./-m.dnn --plan no$esc" \
  "convert no$esc --map no$esc -o x" "run ./-m.dnn $small --data $root --load no$esc" \
  "run ./-m.dnn $small --data $root --trace no$esc/file --steps 1 --no-save"; do
  # shellcheck disable=SC2086
  "$dnnc" $words >out 2>&1 && fail "'$words' is right"
  ! grep -qF "$esc" out || { cat -v out; fail "'$words' prints an escape"; }
  grep -qF '\x1b[31m' out || { cat -v out; fail "'$words' does not show it"; }
done

# A timeline into a pipe would wait for a reader.
rank() { "$work/-m.bundle/rank-0000" --data "$root" --json "$@"; }
mkfifo pipe
timeout 20 "$work/-m.bundle/rank-0000" --data "$root" --steps 2 --no-save \
  --trace pipe >out 2>err
code=$?
[ $code = 1 ] || { cat err; fail "trace into a pipe: exit $code"; }
grep -q "^error: 'pipe' is a pipe; a timeline is written to a file$" err ||
  { cat err; fail "trace into a pipe: message"; }
mkdir folder
rank --steps 2 --no-save --trace folder >out 2>err
[ $? = 1 ] && grep -q "^error: 'folder' is a folder; a timeline" err ||
  { cat err; fail "trace into a folder"; }

# Without free descriptors a save fails for that reason, twice.
command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null || exit 0
strace -f -o calls -e trace=openat,mkdirat "$work/-m.bundle/rank-0000" \
  --data "$root" --json --steps 2 >/dev/null 2>&1
rm -rf mlp.ckpt
first=$(grep -E ' (openat|mkdirat)\(' calls | awk '/mkdirat/ { print NR; exit }')
strace -f -o /dev/null -e trace=openat -e inject=openat:error=EMFILE:when="$first"+ \
  "$work/-m.bundle/rank-0000" --data "$root" --json --steps 2 >out 2>err
code=$?
[ $code = 3 ] || { cat err; fail "no descriptors: exit $code"; }
[ "$(grep -c 'cannot open a folder: Too many open files' err)" = 2 ] ||
  { cat err; fail "no descriptors: message"; }
exit 0

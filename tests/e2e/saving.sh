#!/bin/bash
# Every system call of a checkpoint save fails, one after the other: training
# continues with a warning, or ends with a clear message; earlier checkpoints
# are complete and resume; no incomplete file is ever taken for a checkpoint.
. "$(dirname "$0")/lib.sh"
command -v strace >/dev/null || skip "needs strace"
strace -o /dev/null true 2>/dev/null || skip "strace may not trace here"
"$dnnc" build "$root/models/mlp.dnn" -o m.bundle --quiet H1=16 H2=8 \
  save_every=4 eval_batches=1 || fail "build"
export OMP_NUM_THREADS=1
rank() { "$work/m.bundle/rank-0000" --data "$root" --json "$@"; }
mkdir base && (cd base && rank --steps 4 >/dev/null 2>&1) || fail "first run"
(cd base && strace -f -o ../calls -e trace=%file,write,pwrite64,writev,fsync,fdatasync,ftruncate,close,getdents64,flock \
  "$work/m.bundle/rank-0000" --data "$root" --json --resume --steps 8 >/dev/null 2>&1)
rm -rf base && mkdir base && (cd base && rank --steps 4 >/dev/null 2>&1)
count=0
for call in openat mkdir mkdirat rename renameat fsync fdatasync write pwrite64 \
  writev unlink unlinkat ftruncate getdents64; do
  total=$(grep -cE "^[0-9]+ +$call\(" calls)
  # The calls of start-up come first; the last ones belong to the save.
  first=$((total > ${DNNC_SAVE_CALLS:-12} ? total - ${DNNC_SAVE_CALLS:-12} + 1 : 1))
  for n in $(seq "$first" "$total"); do
    for when in "$n" "$n+"; do
      rm -rf try && cp -a base try
      (cd try && strace -f -o /dev/null -e trace="$call" \
        -e inject="$call":error=ENOSPC:when="$when" \
        timeout 60 "$work/m.bundle/rank-0000" --data "$root" --json --resume --steps 8 \
        >out 2>err)
      code=$?
      count=$((count + 1))
      case $code in
      0 | 1 | 3) ;;
      *) cat try/err; fail "$call $when: exit $code" ;;
      esac
      # Where every further write fails, words cannot be written either.
      [ $code = 0 ] || [ -s try/err ] || [ "$call${when##*[0-9]}" = write+ ] ||
        fail "$call $when: exit $code without a word"
      (cd try && rank --resume --no-save --steps 9 >again 2>&1) ||
        { cat try/again; fail "$call $when: does not resume"; }
    done
  done
done
echo "$count faults"
[ $count -gt 20 ] || fail "too few faults were tried"

# A limit on the size of files (ulimit -f, in KB) is a full disk, not a death:
# a warning at the first save, exit 3 at the second in a row; so in dnnc.
rm -rf limited && mkdir limited
(cd limited && ulimit -f 16 && rank --steps 12) >limited.json 2>limited.err
code=$?
[ $code = 3 ] || { cat limited.err; fail "limited files: exit $code"; }
grep -q "^warning: cannot save step 4 in '.*': .*File too large; training continues$" \
  limited.err || { cat limited.err; fail "limited files: no warning"; }
[ "$(grep -c '"step":' limited.json)" -ge 8 ] || fail "limited files: no steps"
(ulimit -f 16 && "$dnnc" build "$root/models/mlp.dnn" --no-cache -o l.bundle) \
  >limited.out 2>limited.err
code=$?
[ $code = 3 ] || { cat limited.err; fail "limited build: exit $code"; }
grep -qi 'too large' limited.err || { cat limited.err; fail "limited build: no cause"; }
[ ! -e l.bundle ] || fail "limited build: something is left"
step=base/mlp.ckpt/$(cat base/mlp.ckpt/latest)
printf 'linear[{i}].%s = x.{i}.%s\n' w w b b | sed '1i range i = 0..2' >same.map
(ulimit -f 16 && "$dnnc" convert "$step" --map same.map -o l.ckpt) >limited.out 2>limited.err
code=$?
[ $code = 3 ] || { cat limited.err; fail "limited convert: exit $code"; }
grep -qi 'too large' limited.err || { cat limited.err; fail "limited convert: no cause"; }

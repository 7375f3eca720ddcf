#!/bin/bash
# Output that cannot be written: a closed or full standard output ends with a
# message and exit code 3, and never becomes part of a file; the output of a
# failing compiler is shown; a build that is ended early leaves no file; a
# timeline that does not fit on the disk leaves no incomplete file.
. "$(dirname "$0")/lib.sh"
cp -r "$root/models" .
export OMP_NUM_THREADS=1
small="models/mlp.dnn --data $root H1=16 H2=8 eval_batches=1"

# ---- standard output ----
"$dnnc" list ops >/dev/full 2>err
[ $? = 3 ] && grep -q 'standard output' err || fail "a full standard output"
"$dnnc" check models/mlp.dnn >&- 2>err
[ $? = 3 ] && grep -q 'standard output' err || fail "a closed standard output"
"$dnnc" run $small --steps 2 >/dev/full 2>err
[ $? = 3 ] && grep -q 'standard output' err || fail "a run into a full disk"
rm -rf mlp.ckpt
# The first file that a process without streams opens would be its stream 1.
"$dnnc" run $small --steps 2 <&- >&- 2>&-
[ $? = 3 ] || fail "a run without streams"
! grep -rlq 'step 1/' mlp.ckpt || fail "a log line in a checkpoint"
"$dnnc" run $small --resume --steps 3 >out 2>err ||
  { cat err; fail "what a run without streams saved"; }
grep -q '^step 3/' out || { cat out; fail "did not go on at step 3"; }
grep -q '^saved mlp.ckpt/step-00000003' err || fail "no word of the checkpoint"

# ---- a timeline on a full disk ----
ln -s /dev/full full.json
"$dnnc" run $small --no-save --steps 2 --trace full.json >out 2>err
[ $? = 3 ] && [ -e /dev/full ] && [ -L full.json ] || fail "a trace into a device"

# ---- a run that is killed ----
# It cannot tidy up: the next one does, and leaves those of runs that live.
"$dnnc" run $small steps=100000 --no-save >out 2>&1 &
alive=$!
"$dnnc" run $small steps=100000 --no-save >out2 2>&1 &
killed=$!
for _ in $(seq 500); do
  [ "$(ls -d "$XDG_CACHE_HOME"/dnnc/run-*/bundle 2>/dev/null | wc -l)" = 2 ] && break
  sleep 0.02
done
kill -KILL $killed
wait $killed
sleep 0.2 # its rank ends with it
"$dnnc" run $small steps=1 --no-save --quiet >out2 2>&1 || { cat out2; fail "run after a killed one"; }
left=$(ls -d "$XDG_CACHE_HOME"/dnnc/run-* | wc -l)
kill -TERM $alive
wait $alive
[ "$left" = 1 ] || fail "after a killed run: $left folders, not the one in use"

# ---- a compiler that fails: the start of what it printed, however much ----
cat >failing-cc <<'END'
#!/bin/sh
[ "$1" = --version ] && exit 0
[ -n "$SILENT" ] || { echo "the reason"; seq 300000; }
exit 1
END
chmod +x failing-cc
CC=$work/failing-cc "$dnnc" build models/mlp.dnn --quiet -o m.bundle 2>err
[ $? = 3 ] && grep -q '^the reason$' err || { head -c 500 err; fail "a long log"; }
[ "$(wc -c <err)" -lt 10000 ] || fail "all of a long log"
SILENT=1 CC=$work/failing-cc "$dnnc" build models/mlp.dnn --quiet -o m.bundle 2>err
[ $? = 3 ] && grep -q 'it printed nothing' err || { cat err; fail "no log"; }
[ ! -e m.bundle ] || fail "a failed build left a bundle"

# ---- a build that is ended ----
stub_cc
sed -i '2i sleep 0.5' stub-cc
mkdir place
for signal in TERM:143 HUP:129; do
  (cd place && exec "$dnnc" build ../models/mlp.dnn --no-cache -o m.bundle --quiet) &
  pid=$!
  for _ in $(seq 100); do [ -n "$(ls -A place)" ] && break; sleep 0.02; done
  [ -n "$(ls -A place)" ] || fail "the build made no folder"
  kill -"${signal%:*}" $pid
  wait $pid
  [ $? = "${signal#*:}" ] || fail "${signal%:*}: not ended by the signal"
  [ -z "$(ls -A place)" ] || fail "${signal%:*}: left $(ls -A place)"
done
"$dnnc" run $small --no-save >out 2>&1 &
pid=$!
for _ in $(seq 100); do ls "$XDG_CACHE_HOME"/dnnc/run-* >/dev/null 2>&1 && break; sleep 0.02; done
kill -TERM $pid
wait $pid
[ $? = 143 ] || { cat out; fail "run: not ended by the signal"; }
! ls -d "$XDG_CACHE_HOME"/dnnc/run-* 2>/dev/null || fail "run: a folder is left"

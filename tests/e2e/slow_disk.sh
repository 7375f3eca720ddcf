#!/bin/bash
# SIGTERM and Ctrl-C where the disk takes 5 s a sync: the checkpoint is complete
# nevertheless, and the exit code is 143 and 130.
. "$(dirname "$0")/lib.sh"
command -v strace >/dev/null || skip "needs strace"
strace -o /dev/null true 2>/dev/null || skip "strace may not trace here"
ranks=1
has_mpi && ranks=2
"$dnnc" build "$root/models/mlp.dnn" --ranks $ranks -o m.bundle --quiet H1=16 \
  H2=8 epochs=4000 save_every=0 eval_batches=1 || fail "build"
check() ( # SIGNAL:CODE
  case=$1 folder=$work/${1%:*}
  mkdir "$folder" && cd "$folder" || exit 1
  : >out
  # The tracer ignores neither signal: only the launcher below it is told.
  strace -f -o /dev/null -e trace=fsync,fdatasync \
    -e inject=fsync,fdatasync:delay_exit=5000000 \
    "$work/m.bundle/run" --data "$root" --json >out 2>err &
  tracer=$!
  for _ in $(seq 200); do
    [ "$(grep -c '"step"' out)" -ge 20 ] && break
    sleep 0.1
  done
  [ "$(grep -c '"step"' out)" -ge 20 ] || { cat err; fail "no steps"; }
  kill -"${case%:*}" "$(pgrep -P $tracer | head -n 1)"
  wait $tracer
  code=$?
  [ $code = "${case#*:}" ] || { cat err; fail "$case: exit $code"; }
  step=$(cat mlp.ckpt/latest) || { cat err; fail "$case: no checkpoint"; }
  "$work/m.bundle/run" --data "$root" --json --resume --no-save \
    --steps $((10#${step#step-} + 2)) >again 2>&1 ||
    { cat again; fail "$case: does not resume"; }
  echo "SIG${case%:*}: exit $code, $step whole"
)
check TERM:143 & # both wait for the disk most of the time
first=$!
check INT:130 || exit 1
wait $first || exit 1

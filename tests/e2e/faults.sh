#!/bin/bash
# Faults of machines end with a clear message and the right exit code within 10
# s, leave no process or file, and the last complete checkpoint resumes.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
"$dnnc" build "$root/models/mlp.dnn" --ranks 2 -o m.bundle --quiet epochs=400 \
  save_every=200 eval_batches=1 || fail "build"
run="m.bundle/run --data $root --json"

ranks_of() { pgrep -f "$work/m.bundle/rank-000" 2>/dev/null; }
start() { # folder, arguments: starts in the background, waits for steps
  folder=$1
  shift
  mkdir -p "$folder"
  : >"$folder.json"
  # shellcheck disable=SC2086 # words of a command
  (cd "$folder" && exec ${before:-} "$work/m.bundle/run" --data "$root" --json "$@") \
    >"$folder.json" 2>"$folder.err" &
  pid=$!
  for _ in $(seq 200); do
    [ "$(grep -c '"step"' "$folder.json")" -ge "${steps_wanted:-250}" ] && return
    kill -0 $pid 2>/dev/null || break
    sleep 0.1
  done
  cat "$folder.err"
  fail "$folder: did not get going"
}
ends() { # expected exit code, seconds
  local begin code
  begin=$(date +%s)
  while kill -0 $pid 2>/dev/null; do
    if ! in_time $((1000 * ($(date +%s) - begin))) $((1000 * $2)); then
      cat "$folder.err"
      fail "$folder: still running after $2 s"
    fi
    sleep 0.1
  done
  wait $pid
  code=$?
  [ $code = "$1" ] || { cat "$folder.err"; fail "$folder: exit $code, expected $1"; }
  sleep 0.5
  [ -z "$(ranks_of)" ] || fail "$folder: processes left: $(ranks_of)"
  echo "$folder: exit $code: $(grep -v '^$' "$folder.err" | tail -n 1)"
}
resumes() {
  local step
  step=$(cat "$folder/mlp.ckpt/latest") || fail "$folder: no checkpoint"
  (cd "$folder" && "$work/m.bundle/run" --data "$root" --json --resume \
    --no-save --steps $((10#${step#step-} + 3))) >"$folder-again.json" 2>"$folder-again.err" ||
    { cat "$folder-again.err"; fail "$folder: does not resume"; }
  [ "$(grep -c '"step":' "$folder-again.json")" -ge 3 ] || fail "$folder: resumed nothing"
}

start killed
kill -KILL "$(ranks_of | tail -n 1)"
ends 3 10
resumes

start stopped
kill -STOP "$(ranks_of | tail -n 1)"
ends 3 10

# Where ranks share a core, one that waits sleeps between polls, which counts as a
# voluntary switch to another process; sched_yield is none.
if command -v taskset >/dev/null; then
  sleeps_of() { cat "/proc/$1/task"/*/status | awk '/^voluntary/ { n += $2 } END { print n }'; }
  before="taskset -c $(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" start waiting --no-save
  waiter=$(ranks_of | head -n 1) stopped=$(ranks_of | tail -n 1)
  kill -STOP "$stopped"
  sleep 0.5
  n=$(sleeps_of "$waiter")
  sleep 3
  n=$(($(sleeps_of "$waiter") - n))
  kill -CONT "$stopped"
  echo "a rank that waits for 3 s on a shared core sleeps $n times"
  [ $n -ge 30 ] || fail "a rank that waits polls"
  kill -TERM $pid
  ends 143 10
fi

start launcher_killed
kill -KILL $pid
wait $pid 2>/dev/null
for _ in $(seq 100); do [ -z "$(ranks_of)" ] && break; sleep 0.1; done
[ -z "$(ranks_of)" ] || fail "launcher killed: ranks live on"
folder=launcher_killed resumes

start terminated
kill -TERM $pid
ends 143 10
resumes

start interrupted
kill -INT $pid
ends 130 10
resumes

# An mpirun that crashes when all ranks have ended takes nothing away.
mkdir -p crashing
printf '#!/bin/bash\n%s "$@"\nkill -SEGV $$\n' "$(command -v mpirun)" >crashing/mpirun
chmod +x crashing/mpirun
PATH=$PWD/crashing:$PATH $run --steps 3 --no-save >crash.json 2>crash.err ||
  { cat crash.err; fail "a crash of mpirun at the end"; }
grep -q 'warning: mpirun was killed' crash.err || fail "no word of the crash"

# A rank that is stopped while MPI ends sends no heartbeat, and all have said
# that they end: the launcher waits for 5 s.
cat >finalize.c <<'END'
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
int MPI_Finalize(void) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank && *rank == '1') raise(SIGSTOP);
  return ((int (*)(void))dlsym(RTLD_NEXT, "MPI_Finalize"))();
}
END
if ${CC:-cc} -D_GNU_SOURCE -shared -fPIC finalize.c -o finalize.so -Wl,--no-as-needed -l:libmpi.so.40 2>cc.err; then
  begin=$(date +%s%N)
  DNN_MPI_LIB=$PWD/finalize.so timeout -k 1 20 $run --steps 3 --no-save >late.json 2>late.err
  code=$?
  ms=$((($(date +%s%N) - begin) / 1000000))
  for p in $(ranks_of); do kill -KILL "$p"; done
  [ $code = 0 ] || { cat late.err; fail "stopped at the end: exit $code after $ms ms"; }
  in_time $ms 10000 || fail "stopped at the end: $ms ms"
  grep -q 'warning: the ranks have not ended' late.err || { cat late.err; fail "stopped at the end: no word of it"; }
  echo "stopped at the end: exit $code after $ms ms"
else
  echo "stopped at the end: skipped, no libmpi.so.40 to link with: $(head -n 1 cc.err)"
fi

# A missing oneDNN costs speed: one warning, exit 0.
DNN_ONEDNN_LIB=none $run --steps 3 --no-save >dnnl.json 2>dnnl.err ||
  { cat dnnl.err; fail "without oneDNN"; }
[ "$(grep -ci onednn dnnl.err)" = 1 ] || { cat dnnl.err; fail "not one warning"; }

# A missing MPI: exit 3 with what to install.
DNN_MPI_LIB=none $run --steps 3 --no-save >mpi.json 2>mpi.err
[ $? = 3 ] || { cat mpi.err; fail "without MPI: not exit 3"; }
grep -qi 'mpi' mpi.err || fail "without MPI: no message"

# A full disk: a warning, training continues; twice in a row ends with exit 3.
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
  mkdir -p small
  unshare -m bash -c "mount -t tmpfs -o size=3m none small && cd small &&
    '$work/m.bundle/run' --data '$root' --json --steps 1000" >full.json 2>full.err
  [ $? = 3 ] || { cat full.err; fail "full disk: not exit 3"; }
  grep -qi 'space' full.err || { cat full.err; fail "full disk: no message"; }
  grep -q 'its files take [0-9]* bytes, and [0-9]* are free: [0-9]* are missing' full.err ||
    { cat full.err; fail "full disk: the missing bytes are not named"; }
  [ "$(grep -c '"step":' full.json)" -gt 250 ] || fail "full disk: stopped at the first failure"
  # Where the compiler has no room even for its messages, ours says so.
  unshare -m bash -c "mount -t tmpfs -o size=600k none small &&
    '$dnnc' build '$root/models/chargpt.dnn' --no-cache \
    -o '$work/small/full.bundle'" >full.out 2>full.err
  [ $? = 3 ] || { cat full.err; fail "full disk, compiling: not exit 3"; }
  grep -qi 'space' full.err || { cat full.err; fail "full disk, compiling: no message"; }
fi

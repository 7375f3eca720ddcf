#!/bin/bash
# A worker or a server that is killed or stalled ends all ranks of a plan with servers within 10 s, with a message that
# names a rank and a step, and leaves no process; the last complete checkpoint resumes under data parallelism.  A signal
# ends a run with a checkpoint.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
export OMP_NUM_THREADS=1

build() { # bundle plan
  printf '%s\n' "$2" >"$1.plan"
  "$dnnc" build "$root/models/mlp.dnn" --plan "$1.plan" -o "$1" --quiet epochs=400 save_every=100 eval_batches=1 --data "$root" ||
    fail "build of $1"
}
build bsp 'mesh { data = 2 }
plan { sync = server(ranks = 2..3, staleness = 0) }'
build asp 'mesh { data = 2 }
plan { sync = server(ranks = 2..3, staleness = none) }'
build data 'mesh { data = 2 }
plan { }'

ranks_of() { pgrep -f "$work/[a-z]*/rank-000" 2>/dev/null; }
rank() { # bundle number: the process of a rank
  for pid in $(ranks_of); do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2" && echo "$pid"
  done
}

start() { # folder bundle
  folder=$1
  rm -rf "$folder"
  mkdir -p "$folder"
  (cd "$folder" && exec "$work/$2/run" --data "$root" --json) >"$folder.json" 2>"$folder.err" &
  run=$!
  for _ in $(seq 300); do
    [ -e "$folder/mlp.ckpt/latest" ] && return
    kill -0 $run 2>/dev/null || break
    sleep 0.1
  done
  cat "$folder.err"
  fail "$folder: did not get going"
}

ends() { # exit code
  local begin=$SECONDS code
  while kill -0 $run 2>/dev/null; do
    [ $((SECONDS - begin)) -le 10 ] || { cat "$folder.err"; fail "$folder: still running after 10 s"; }
    sleep 0.1
  done
  wait $run
  code=$?
  [ $code = "$1" ] || { cat "$folder.err"; fail "$folder: exit $code, not $1"; }
  sleep 0.5
  [ -z "$(ranks_of)" ] || fail "$folder: processes left: $(ranks_of)"
}

resumes() {
  local step
  step=$(sed 's/step-0*//' "$folder/mlp.ckpt/latest") || fail "$folder: no checkpoint"
  (cd "$folder" && "$work/data/run" --data "$root" --json --resume --no-save --steps $((step + 2))) >again.json 2>again.err ||
    { cat again.err; fail "$folder: does not resume"; }
  [ "$(grep -c '"step":' again.json)" -ge 2 ] || fail "$folder: resumed nothing"
}

for kind in bsp asp; do
  for who in 1 3; do
    for how in KILL STOP; do
      start "$kind-$who-$how" $kind
      kill -$how "$(rank $kind $who)" || fail "no rank $who"
      ends 3
      grep -q "rank $who" "$folder.err" || { cat "$folder.err"; fail "$folder: names no rank $who"; }
      grep -q "step [0-9]" "$folder.err" || { cat "$folder.err"; fail "$folder: names no step"; }
      resumes
      echo "$folder: $(grep -v '^$' "$folder.err" | grep -v '^note' | head -n 1)"
    done
  done
  start "$kind-TERM" $kind
  kill -TERM $run
  ends 143
  resumes
  echo "$folder: $(tail -n 1 "$folder.err")"
done

#!/bin/bash
# A worker or a server that is killed or stalled, or a link between them that is cut, ends all ranks of a plan with servers
# within 10 s, with a message that names rank, clock and peer, and leaves no process; the last complete checkpoint resumes
# under data parallelism, with equal bits.  A signal ends a run with a checkpoint.  Runs that end leave nothing.
#   server_faults.sh DNNC [STARTS]   STARTS starts and ends of runs of each kind; by default 1,
#                                    and 6 of the 18 faults and signals
# Links are cut between network namespaces, one to a rank, which only root may make.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/namespaces.bash"
. "$root/tests/e2e/server_runs.bash"
has_mpi || skip "needs mpirun"
starts=${2:-1}
prefix=dnns$$
trap 'namespaces_remove; rm -rf "$work"' EXIT
ns_prefix=$prefix ns_count=0
export OMP_NUM_THREADS=1

build() { # bundle plan
  printf '%s\n' "$2" >"$1.plan"
  "$dnnc" build "$root/models/mlp.dnn" --plan "$1.plan" -o "$1" --quiet epochs=400 save_every=100 eval_batches=1 \
    optimizer="sgd(lr = 0.01, momentum = 0.9)" --data "$root" ||
    fail "build of $1"
}
build bsp 'mesh { data = 2 }
plan { sync = server(ranks = 2..3, staleness = 0) }'
build asp 'mesh { data = 2 }
plan { sync = server(ranks = 2..3, staleness = none) }'
build ssp 'mesh { data = 2 }
plan { sync = server(ranks = 2..3, staleness = 2) }'
build data 'mesh { data = 2 }
plan { }'

ends() { # exit code, limit
  local begin=$SECONDS code limit=${2:-10}
  while kill -0 $run 2>/dev/null || [ -n "$(ranks_of)" ]; do
    in_time $((1000 * (SECONDS - begin))) $((1000 * limit)) || { cat "$folder.err"; fail "$folder: still running after $limit s"; }
    sleep 0.1
  done
  wait $run 2>/dev/null
  code=$?
  # shellcheck disable=SC2053
  [[ $code == $1 ]] || { cat "$folder.err"; fail "$folder: exit $code, not $1"; }
}

# Rank, clock and what it waited for are in the messages.
named() { # what names the fault
  grep -q "$1" "$folder.err" || { cat "$folder.err"; fail "$folder: nothing says '$1'"; }
  grep -qE "^(note: )?rank [0-9]+ .*step [0-9]+" "$folder.err" || { cat "$folder.err"; fail "$folder: names no step"; }
  grep -qE "(push|reply|update|all_gather|all_reduce).* ranks? [0-9]" "$folder.err" || { cat "$folder.err"; fail "$folder: names no peer"; }
}

sums() { grep -o '"parameters_sha256":\["[^"]*' "$1" | tail -n 1; }
resumes() {
  local step with
  step=$(sed 's/step-0*//' "$folder/mlp.ckpt/latest") || fail "$folder: no checkpoint"
  [ -z "$(find "$folder" -name '*unfinished*')" ] || fail "$folder: half a checkpoint is left"
  for with in data "$kind"; do
    (cd "$folder" && "$work/$with/run" --data "$root" --json --resume --no-save --steps "$step") >"again.$with" 2>again.err ||
      { cat again.err; fail "$folder: $with does not load"; }
  done
  [ -n "$(sums again.data)" ] && [ "$(sums again.data)" = "$(sums "again.$kind")" ] || fail "$folder: other parameters"
  (cd "$folder" && "$work/data/run" --data "$root" --json --resume --no-save --steps $((step + 2))) >again.json 2>again.err ||
    { cat again.err; fail "$folder: does not resume"; }
  [ "$(grep -c '"step":' again.json)" -ge 2 ] || fail "$folder: resumed nothing"
}

# rests PID: prints what a run left behind: files in /tmp and /dev/shm, and sockets.
rests() {
  find /tmp /dev/shm -maxdepth 1 -name "dnn-run-$1-*" 2>/dev/null
  grep "$work" /proc/net/unix
}

links=yes
if namespaces_allowed "${prefix}t"; then
  namespaces_make "$prefix" 4 || fail "network namespaces"
else
  links=no
fi

# is_chosen: a third of all, without STARTS, and of each kind of run other ones.
n=0 first=0
is_chosen() {
  n=$((n + 1))
  [ "$starts" -gt 1 ] || [ $((n % 3)) = $((first % 3)) ]
}

for kind in bsp asp ssp; do
  n=0 first=$((first + 1))
  for who in 1 3; do
    for how in KILL STOP; do
      is_chosen || continue
      start "$kind-$who-$how" $kind
      kill -$how "$(rank $kind $who)" || fail "no rank $who"
      ends 3
      named "rank $who"
      resumes
      echo "$folder: $(grep -v '^$' "$folder.err" | grep -v '^note' | head -n 1)"
    done
  done
  if ! is_chosen; then
    :
  elif [ $links = yes ]; then
    start "$kind-link" $kind links
    namespaces_cut 0 3
    ends '[1-9]*'
    namespaces_heal 0 3
    named "no contact between rank 0 and rank 3"
    resumes
    echo "$folder: $(grep -h 'no contact' "$folder.err" | head -n 1)"
  else
    echo "$kind-link: skipped: network namespaces need root"
  fi
  if is_chosen; then
    start "$kind-TERM" $kind
    kill -TERM $run
    ends 143
    resumes
    echo "$folder: $(tail -n 1 "$folder.err")"
  fi
  for _ in $(seq "$starts"); do
    rm -rf short
    mkdir short
    (cd short && exec "$work/$kind/run" --data "$root" --json --steps 3) >short.json 2>short.err &
    run=$! folder=short
    ends 0 120
    [ -z "$(rests $run)" ] || { rests $run; fail "$kind: a run leaves that"; }
  done
  echo "$kind: $starts starts and ends leave nothing"
done

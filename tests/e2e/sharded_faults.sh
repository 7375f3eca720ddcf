#!/bin/bash
# A rank of a sharded program is killed or stopped, or a link is cut, at a random
# moment: all ranks end within 10 s, one message names who is lost, nothing is
# left behind, and another plan resumes with equal parameters.  A busy machine
# gives no false alarm.
# Between stages it names the edge and the micro-batch.
#   sharded_faults.sh DNNC [CASES [SEED]]     6 cases by default, 30 for all; and one more
# It takes about 100 s (30 cases: 10 min).  The links are between network
# namespaces, one to a rank, which only root may make.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/namespaces.bash"
has_mpi || skip "needs mpirun"
cases=${2:-6} seed=${3:-1}
RANDOM=$seed
limit_ms=10000
prefix=dnn$$x
trap 'namespaces_remove; kill $stranger; rm -rf "$work"' EXIT
# The daemon of another run of this script, with equal addresses, is none of ours.
(exec -a 'orted -mca orte_hnp_uri 1.0;tcp://10.79.0.1:55647' sleep 3600) >/dev/null 2>&1 &
stranger=$!
ns_prefix=$prefix ns_count=0

# ---- programs ----

# name, model, mesh, lines of the plan.  Those of pipelines are 4 to 6, one for
# each kind of fault; stages are in a chain of ranks, or of pairs of them.
programs='tensor2      gpt tensor=2          shard H, F over tensor
data_tensor6   gpt data=3;tensor=2   shard B over data; shard H, F over tensor
experts4       moe expert=4          shard B, E over expert
data_zero6     gpt data=3;tensor=2   shard B over data; shard H, F over tensor; zero = 3
stages3        mlp pipe=3            schedule = 1f1b; microbatches = 4; cut after x[0]; cut after x[1]
stages2        gpt pipe=2            schedule = fthenb; microbatches = 3; cut after block[0]
stages_data4   mlp pipe=2;data=2     schedule = 1f1b; microbatches = 3; cut after x[0]; shard B over data
zero3          gpt data=3            zero = 3
data_tensor4   gpt data=2;tensor=2   shard B over data; shard H, F over tensor
experts_data4  moe data=2;expert=2   shard B over (data, expert); shard E over expert
stages_own3    mlp -                 microbatches = 2; stage 0: linear[0], x[0] on 0..1 as (data = 2); stage 1: linear[1..2] on 2
stages_zbv2    mlp pipe=2            schedule = zbv; microbatches = 4; cut after linear[0]; cut after linear[1]; cut after x[1]'
mapfile -t plans < <(awk '{ print $1 }' <<<"$programs")
build() { # name
  local name model mesh lines every=5
  [ -d "$1" ] && return
  case $1 in stages*) every=100 ;; esac # most of the time between saves
  read -r name model mesh lines < <(grep "^$1 " <<<"$programs")
  printf 'mesh { %s }\nplan { %s }\n' "$mesh" "$lines" >"$name.plan"
  [ "$mesh" != - ] || printf 'plan { %s }\n' "$lines" >"$name.plan" # stages have their own
  "$dnnc" build "$root/benchmarks/systems/$model.dnn" --plan "$name.plan" -o "$name" --quiet \
    B=12 steps=1000000 save_every=$every 'save="ckpt"' 2>err || { cat err; fail "build $name"; }
}
ranks_of() { find "$work/$1" -name 'rank-*' | wc -l; }

# ---- one case ----

now_ms() { echo $(($(date +%s%N) / 1000000)); }
# An orted is called with the path of the agent that started it.
processes() { pgrep -f "$work/$1/rank-" || pgrep -f "$work/run/agent|ompi.$prefix"; }
pid_of() { pgrep -f "^$work/$1/rank-000$2( |\$)" | head -n 1; }
start() { # plan, over namespaces: waits for steps
  rm -rf run
  mkdir -p run
  if [ "$2" = links ]; then
    (cd run && namespaces_run "$work/$1" "$(ranks_of "$1")" --no-save) >out 2>err &
  else
    (cd run && exec "$work/$1/run") >out 2>err &
  fi
  pid=$!
  for _ in $(seq 600); do
    [ "$(grep -c '^step' out)" -ge 3 ] && { [ "$2" = links ] || [ -e run/ckpt/latest ]; } && break
    kill -0 $pid 2>/dev/null || { cat err; fail "$1: did not start"; }
    sleep 0.1
  done
  sleep "$((RANDOM % 3)).$((RANDOM % 10))"
}
wait_end() { # plan: sets ms and code
  local begin=$1 plan=$2
  wait $pid 2>/dev/null
  code=$?
  while [ -n "$(processes "$plan")" ] && [ $(($(now_ms) - begin)) -lt 20000 ]; do sleep 0.1; done
  ms=$(($(now_ms) - begin))
}
check_rest() { # plan
  local left
  left=$(find /tmp /dev/shm -maxdepth 1 \( -name "dnn-run-$pid-*" -o -name "ompi.$prefix*" \) 2>/dev/null)
  [ -z "$left" ] || failure="left behind: $left"
  [ -z "$(find run -name '*unfinished*')" ] || failure="half a checkpoint is left"
  [ -z "$(processes "$1")" ] || failure="processes live on"
  in_time $ms $limit_ms || failure="ended late"
}
# Which message must come, once.
named() { # pattern
  local n
  n=$(cat out err | grep -cE "$1")
  [ "$n" = 1 ] || failure="$n lines say '$1'"
}
# Checks that a message says what a rank waited for, with operator, path and peers;
# of stages, with edge and micro-batch, too, unless
# it waited for a checkpoint.
waited() { # plan, ranks that the message is with
  local where="rank [0-9]+ (waits|is) at step [0-9]+, instruction [0-9]+ of [a-z]+, '" edge
  case $1 in
    stages_own*) where='rank [0-9]+ \(stage [0-9]+\) waits at step [0-9]+, instruction [0-9]+ of ' ;; # also for a replica
    stages*)
      edge="(send|recv) edge '[^']+' \\(instruction [0-9]+, (micro-batch [0-9]+|once a step)\\) (to|from) rank $2 "
      where="rank [0-9]+ \\(stages? [0-9, ]+\\) waits at step [0-9]+, instruction ([0-9]+ of train.*; $edge|0 of (save|compare),)"
      # Or for another replica of its stage.
      [[ $1 != stages_data* ]] || where="$where|rank [0-9]+ \\(stages? [0-9, ]+\\) waits at step [0-9]+, instruction [0-9]+ of train, 'optimizer"
      ;;
  esac
  cat out err | grep -qE "$where" || failure="nothing says where a rank waited: $(cat out err | grep '^note: rank')"
}
case_local() { # plan, signal, victim
  local begin
  start "$1" local
  begin=$(now_ms)
  kill "-$2" "$(pid_of "$1" "$3")" || fail "$1: no rank $3"
  wait_end "$begin" "$1"
  [ $code = 3 ] || failure="exit $code"
  named "^error: lost rank $3: "
  waited "$1" "$3"
  [ "$2" = KILL ] || grep -q "it is stopped" err || failure="not called stopped"
}
case_link() { # plan, a, b, a rank to stop before it says so
  local begin
  start "$1" links
  begin=$(now_ms)
  namespaces_cut "$2" "$3"
  [ -z "${4:-}" ] || { sleep 6.3; kill -STOP "$(pid_of "$1" "$4")"; }
  wait_end "$begin" "$1"
  namespaces_heal "$2" "$3"
  [ $code != 0 ] || failure="exit 0"
  named "^rank [0-9]+: no contact between rank $2 and rank $3 "
  waited "$1" "($2|$3)"
}

# ---- resuming under another plan ----

other_plan() { case $1 in experts4) echo experts_data4 ;; experts_data4) echo experts4 ;; stages3) echo stages_data4 ;; stages_data4 | stages_own3 | stages_zbv2) echo stages3 ;; data_zero6) echo tensor2 ;; *) echo data_zero6 ;; esac; }
hash_of() { grep -o '"parameters_sha256":\[[^]]*\]' "$1" | tail -n 1 | grep -o '[0-9a-f]\{64\}' | sort -u; }
resumes() { # plan: its last checkpoint under another, against no fault at all
  local step other
  resumed=-
  [ -e run/ckpt/latest ] || return
  step=$(cat run/ckpt/latest)
  step=$((10#${step#step-}))
  other=$(other_plan "$1")
  [ $step -gt 0 ] || return
  build "$other"
  for p in "$1" "$other"; do
    (cd run && "$work/$p/run" --resume --no-save --json --steps $step) >"hash.$p" 2>err ||
      { cat err; failure="$p does not load step $step"; }
  done
  [ -n "$(hash_of "hash.$1")" ] && [ "$(hash_of "hash.$1")" = "$(hash_of "hash.$other")" ] ||
    failure="parameters differ after loading under $other"
  (cd run && "$work/$other/run" --resume --no-save --json --steps $((step + 10))) >again 2>err ||
    { cat err; failure="$other does not continue"; }
  rm -rf whole
  mkdir whole
  (cd whole && "$work/$1/run" --no-save --json --steps $((step + 10))) >whole.json 2>err ||
    { cat err; failure="no run without a fault"; }
  close "$(field loss again)" "$(field loss whole.json)" 1e-4 ||
    failure="loss $(field loss again) after resuming, $(field loss whole.json) without a fault"
  resumed="$other at $step"
}

# ---- all cases ----

bash "$root/tests/soak/busy.sh" "$dnnc" 10 || fail "busy machine"
allowed=yes
if namespaces_allowed "${prefix}t"; then
  namespaces_make "$prefix" 6 || fail "network namespaces"
else
  allowed=no
fi
printf '%-4s %-14s %5s  %-12s %-52s %7s  %s\n' case plan ranks fault named ms 'resumed under'
good=0 skipped=0
for i in $(seq "$cases"); do
  plan=${plans[$((i % ${#plans[@]}))]}
  build "$plan"
  n=$(ranks_of "$plan") failure='' resumed=-
  a=$((RANDOM % n)) b=$((RANDOM % (n - 1)))
  [ $b -lt $a ] || b=$((b + 1))
  case $plan in # ranks of neighbouring stages
    stages_data*) b=$((a ^ 2)) ;;
    stages_own*) [ $a = 2 ] && b=$((RANDOM % 2)) || b=2 ;;
    stages*) [ $a = 0 ] && b=1 || b=$((a - 1)) ;;
  esac
  low=$((a < b ? a : b)) high=$((a < b ? b : a))
  case $((i % 3)) in
    1) fault="link $low-$high" ;;
    2) fault="KILL $a" ;;
    0) fault="STOP $a" ;;
  esac
  case $fault in
    link*)
      if [ $allowed = no ]; then
        skipped=$((skipped + 1))
        printf '%-4s %-14s %5s  %-12s skipped: network namespaces need root\n' "$i" "$plan" "$n" "$fault"
        continue
      fi
      case_link "$plan" $low $high
      ;;
    *)
      case_local "$plan" "${fault% *}" "$a"
      ;;
  esac
  check_rest "$plan"
  message=$(cat out err | grep -hoE '(lost rank|no contact between) .*' | head -n 1)
  case $fault in link*) ;; *) resumes "$plan" ;; esac
  printf '%-4s %-14s %5s  %-12s %-52.52s %7s  %s\n' "$i" "$plan" "$n" "$fault" "$message" "$ms" "$resumed"
  if [ -n "$failure" ]; then
    cat out err | grep -v '^step'
    echo "case $i: $failure"
  else
    good=$((good + 1))
  fi
done
# The rank that would say which link is cut gets no processor: another one says so.
if [ $allowed = yes ]; then
  build stages3
  failure=
  case_link stages3 1 2 1
  check_rest stages3
  printf '%-4s %-14s %5s  link 1-2, STOP 1 %-50.50s %7s\n' + stages3 3 "$(cat out err | grep -hoE 'rank [0-9]: no contact .*')" "$ms"
  [ -z "$failure" ] || { cat out err | grep -v '^step'; fail "the rank that would speak is stopped: $failure"; }
fi
echo "$good of $((cases - skipped)) cases, $skipped skipped, seed $seed"
[ $((good + skipped)) = "$cases" ]

#!/bin/bash
# `dnnc tune` measures this machine within its budget, leaves whole files when it
# is killed, and what it writes prices plans.
. "$(dirname "$0")/lib.sh"

model=$root/benchmarks/systems/mlp.dnn
plan() { # NAME LINE...
  printf 'mesh { ranks = 2 }\nplan {\n' >"$1"
  printf '  %s\n' "${@:2}" >>"$1"
  echo "}" >>"$1"
}
plan data.plan "shard B over ranks"
plan hidden.plan "shard H1 over ranks"
printf 'mesh { pipe = 2 }\nplan {\n  microbatches = 2\n  cut after x[0]\n}\n' >stages.plan

# ---- alone ----
[ "$(nproc)" -ge 2 ] || skip "one core"
# A busy machine needs a larger budget for the probes that are looked at below;
# none may be passed.
for budget in 60 120 300; do
  begin=$SECONDS
  "$dnnc" tune $model --data "$root" --budget ${budget}s -o here --plan data.plan --plan hidden.plan \
    --plan stages.plan --hold-out data.plan --json >out.json 2>log || [ $budget -lt 300 ] || { cat log; fail "tune"; }
  took=$((SECONDS - begin))
  [ $took -le $((budget + 20)) ] || fail "a budget of $budget s, and it took $took s"
  grep -q "measured 2 ranks, d.x: P in shards:" log && [ -s here.links.csv ] &&
    [ "$(grep -c '"kernels_measured_s"' out.json)" = 3 ] && break
done
for file in here.cluster here.profile here.kernels.csv here.links.csv here.plan; do
  [ -s $file ] || { cat log; fail "no $file"; }
done
grep -q "measured 1 rank:" log || { cat log; fail "one rank"; }
grep -q "^# A cache line took [1-9][0-9]* ns from one core to another and back.$" here.cluster ||
  { cat here.cluster; fail "the distance of cores"; }
grep -q "measured 2 ranks, d.x: P in shards:" log || { cat log; fail "a dim of the data"; }
grep -q "left out 2 ranks, B in shards: it is held out" log ||
  { cat log; fail "a plan that is held out"; }
python3 - <<'END' || { cat out.json log; fail "what the plans took"; }
import json
plans = [json.loads(line) for line in open("out.json")]
assert [p["plan"] for p in plans] == ["data.plan", "hidden.plan", "stages.plan"]
for p in plans:
    assert p["predicted_s"] > 0 and p["measured_s"] > 0, p
    assert 0 < p["kernels_predicted_s"] <= p["predicted_s"], p
    assert 0 < p["kernels_measured_s"], p
END
fastest=$(python3 -c 'import json
print(min((json.loads(l) for l in open("out.json")), key=lambda p: p["measured_s"])["plan"])')
cmp -s here.plan "$fastest" || fail "the fastest is $fastest"

# Its files price this model and another one.
"$dnnc" show here.cluster >words || { cat words; fail "the cluster"; }
"$dnnc" simulate $model --plan hidden.plan --cluster here.cluster --profile here.profile --json >out.json ||
  fail "simulate"
awk -v s="$(field launch_share out.json)" 'BEGIN { exit !(s > 0) }' || { cat out.json; fail "no launch is in the profile"; }
"$dnnc" simulate "$root/benchmarks/systems/gpt.dnn" --ranks 2 --cluster here.cluster --json >out.json || fail "another model"
with=$(field step_s out.json)
grep -v '^measured\|^  kernels\|^  links' here.cluster | sed '$d' >constants.cluster
"$dnnc" simulate "$root/benchmarks/systems/gpt.dnn" --ranks 2 --cluster constants.cluster --json >out.json ||
  { cat constants.cluster; fail "without curves"; }
[ "$with" != "$(field step_s out.json)" ] || fail "curves change nothing"

# ---- killed in the middle ----
for signal in TERM KILL; do
  rm -f killed.*
  "$dnnc" tune $model --data "$root" --budget 90s -o killed >log 2>&1 &
  pid=$!
  while kill -0 $pid 2>/dev/null && ! [ -s killed.cluster ]; do sleep 0.1; done
  kill -$signal $pid
  wait $pid
  [ $? -gt 128 ] || { cat log; fail "SIG$signal came too late"; }
  [ -s killed.profile ] || { cat log; fail "nothing before SIG$signal"; }
  "$dnnc" simulate $model --plan hidden.plan --cluster killed.cluster --profile killed.profile >words ||
    fail "files after SIG$signal"
done

# ---- a budget that is too small, a stop, a folder that is left ----
begin=$(date +%s%N)
"$dnnc" tune $model --data "$root" --budget 1s -o small >log 2>&1 && fail "a budget of 1 s"
ms=$((($(date +%s%N) - begin) / 1000000))
in_time $ms 3500 || { cat log; fail "a budget of 1 s, and it took $ms ms"; }
enough=$(sed -n 's/^help: .*--budget \([0-9]*\)s should be enough for it, at 1 GFLOP\/s$/\1/p' log)
[ "${enough:-0}" -gt 1 ] || { cat log; fail "no budget is named that is enough"; }
"$dnnc" tune $model --data "$root" --budget "${enough}s" -o small >log 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && ! grep -q "^measured 1 rank:" log; do sleep 0.1; done
kill -TERM $pid 2>/dev/null
wait $pid
grep -q "^measured 1 rank:" log || { cat log; fail "the budget that should be enough"; }
mkdir -p tmp
left() { # processes of bundles in tmp
  local exe
  for exe in /proc/[0-9]*/exe; do
    case $(readlink "$exe" 2>/dev/null) in "$work"/tmp/*) echo "$exe" ;; esac
  done
}
held() { # open files in tmp: the parts of a compiler outlive it a moment, and hold the lock
  find /proc/[0-9]*/fd -lname "$work/tmp/*" 2>/dev/null
}
for signal in TERM KILL; do
  for pause in 1 3; do
    TMPDIR=$work/tmp "$dnnc" tune $model --data "$root" --budget 90s -o stopped >log 2>&1 &
    pid=$!
    sleep $pause
    begin=$(date +%s%N)
    kill -$signal $pid
    wait $pid
    ms=$((($(date +%s%N) - begin) / 1000000))
    in_time $ms 3000 || fail "SIG$signal, and it took $ms ms"
    for i in $(seq 20); do
      [ -z "$(left)" ] && break
      sleep 0.1
    done
    [ -z "$(left)" ] || { left; fail "SIG$signal leaves processes"; }
    for i in $(seq 200); do
      [ -z "$(held)" ] && break
      sleep 0.1
    done
    [ $signal = KILL ] || [ -z "$(ls tmp)" ] || { ls tmp; fail "SIG$signal leaves a folder"; }
  done
done
[ "$(ls tmp | wc -l)" = 1 ] || { ls tmp; fail "a killed tune leaves the folder of the one before"; }
mkdir tmp/dnnc-tune-$(id -u)-1
TMPDIR=$work/tmp "$dnnc" tune $model --data "$root" --budget 1s -o stopped >log 2>&1
[ "$(ls tmp)" = dnnc-tune-$(id -u)-1 ] || { ls tmp; fail "the folder of a killed tune stays"; }

# ---- a job ----
if command -v mpirun >/dev/null; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  begin=$SECONDS
  TMPDIR=$work/tmp timeout 120 mpirun -q --oversubscribe --bind-to none -n 2 "$dnnc" tune $model --data "$root" --budget 45s \
    --no-plans -o job >log 2>&1 || { cat log; fail "tune under mpirun"; }
  took=$((SECONDS - begin))
  [ -z "$(ls tmp)" ] || { ls tmp; fail "a job leaves folders"; }
  [ $took -le 65 ] || fail "a budget of 45 s under mpirun, and it took $took s"
  grep -q "measured collectives between the ranks of the job" log || { cat log; fail "links of a job"; }
  [ "$(grep -c '^all_reduce,2,1' job.links.csv)" = 7 ] || { cat job.links.csv; fail "links of a job"; }
  [ -s job.cluster ] || { cat log; fail "the cluster of a job"; }
  [ "$(grep -c 'probes measured' log)" = 1 ] || { cat log; fail "one rank reports"; }
fi

# ---- mistakes ----
wrong() { # MESSAGE OPTION...
  local text=$1
  shift
  "$dnnc" tune "$@" >out 2>message && fail "'$*' ends well"
  grep -q -- "$text" message || { cat message; fail "'$*'"; }
}
for budget in '' 10 0s -5m 10x nan 1e9h; do
  wrong "takes a time of at least a second" $model --budget "$budget"
done
wrong "exclude each other" $model --no-plans --plan data.plan
wrong "cannot open 'missing.plan'" $model --hold-out missing.plan
printf 'net f(x: [N:2]) -> [N] { return x }\n' >net_only.dnn
wrong "has no train block" net_only.dnn
sed -i 's/here.kernels.csv/..\/here.kernels.csv/' here.cluster
"$dnnc" simulate $model --cluster here.cluster 2>message && fail "a curve above the cluster"
grep -q "is not below the folder of the cluster file" message || { cat message; fail "a curve above"; }
sed -i 's/..\/here.kernels.csv/missing.csv/' here.cluster
"$dnnc" simulate $model --cluster here.cluster 2>message && fail "a curve that is missing"
grep -q "the measured kernels: cannot open" message || { cat message; fail "a missing curve"; }
sed -i 's/kernels = /gemm = /' here.cluster
"$dnnc" simulate $model --ranks 2 --cluster here.cluster >words 2>message || fail "a curve with another name"
grep -q "warning: 'gemm' of the cluster is not read" message || { cat message; fail "another name"; }
echo "tune: alone, killed, as a job, and mistakes"

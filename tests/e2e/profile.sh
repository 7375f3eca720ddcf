#!/bin/bash
# `dnnc run --profile` measures launches, `dnnc simulate --profile` prices with
# them, and `dnnc run --paced` sleeps as long as they take.  The model has a
# scan, micro-batches and look-ups by computed indices.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
model="$root/models/reverse.dnn B=8 eval_every=2"
run() { "$dnnc" run $model --microbatches 2 "$@"; }

# ---- measuring ----
run --steps 3 --no-save --quiet --profile one.profile --transfers one.transfers ||
  fail "a profile"
head -n 1 one.profile | grep -qx 'path,phase,kernel,cores,ps,runs' || fail "header"
awk -F, 'NR > 1 && !($3 ~ /^[0-9a-f]+$/ && length($3) == 16 && $4 == 1 && $5 > 0 && $6 > 0) { bad = 1 }
         NR > 1 { phases[$2]++ }
         END { exit !(!bad && NR > 50 && phases["forward"] && phases["dgrad"] &&
                      phases["wgrad"] && phases["update"]) }' one.profile ||
  { cat one.profile; fail "lines of a profile"; }
cut -d, -f1-4 one.profile | sort | uniq -d | grep . && fail "a launch twice"
[ "$(cat one.transfers)" = op,group,bytes,parts,ps,runs ] ||
  fail "transfers of one rank"
# Runs of a step in the scan, in each micro-batch and once: two steps count.
for runs in 48 4 2; do
  grep -q ",$runs\$" one.profile || fail "no launch with $runs runs"
done
ls | grep -q tmp && fail "an unfinished file"

run --steps 2 --no-save --quiet --profile /missing/p 2>message && fail "no folder"
grep -q "cannot write '/missing/p'" message || { cat message; fail "no folder"; }
mkdir folder && mkfifo pipe
for path in folder pipe; do
  run --steps 2 --no-save --quiet --profile $path 2>message && fail "to a $path"
  grep -q "a profile is written to a file" message || { cat message; fail "$path"; }
done
[ -p pipe ] || fail "the pipe is gone"

# A run that is stopped keeps what it has.
"$dnnc" run $model --microbatches 2 --no-save --profile stopped.profile --json \
  >steps 2>message &
pid=$!
for i in $(seq 600); do
  [ "$(grep -c '"ms"' steps)" -ge 4 ] && break
  sleep 0.1
done
kill -TERM $pid
wait $pid
[ $? = 143 ] || { cat message; fail "a run that is stopped"; }
[ "$(wc -l <stopped.profile)" = "$(wc -l <one.profile)" ] || fail "it keeps all"

# ---- prices ----
cluster() { # CORES: of each of two machines
  printf 'cluster one { device = own\n level node { count = 1; link = 1GB/s }\n level network { count = 2; link = 1GB/s; latency = 50us } }\n' >one.cluster
  printf 'device own { base = cpu; memory = 1GiB; cores = %s }\n' "$1" >>one.cluster
}
simulate() { "$dnnc" simulate $model --microbatches 2 --cluster one.cluster --json "$@"; }
cluster 1
simulate --ranks 1 --profile one.profile >out.json || fail "simulate"
[ "$(field launch_share out.json)" = 1.0 ] && [ "$(field time_share out.json | tr -d '}')" = 1.0 ] ||
  { cat out.json; fail "what the profile gives"; }
# Two steps were measured, so this is what the launches of one take.
sum=$(awk -F, 'NR > 1 { s += $5 * $6 } END { printf "%.9f", s / 2 * 1e-12 }' one.profile)
close "$(field step_s out.json)" "$sum" 1e-5 ||
  fail "a step of $(field step_s out.json), the launches take $sum"
simulate --ranks 2 --profile one.profile >out.json || fail "simulate 2"
awk -v s="$(field launch_share out.json)" 'BEGIN { exit !(s > 0.05 && s < 1) }' ||
  { cat out.json; fail "another plan has some launches of the profile"; }
printf 'mesh {\n  data = 1\n}\n\nplan {\n  microbatches = 2\n}\n' >one.plan
priced() { # ARGUMENT ...: show or diff, of the plan of one rank
  "$dnnc" "$@" B=8 eval_every=2 --model "$root/models/reverse.dnn" \
    --cluster one.cluster --profile one.profile --json
}
priced show one.plan >out.json || fail "show"
close "$(field step_s out.json)" "$sum" 1e-5 ||
  fail "show says $(field step_s out.json), the launches take $sum"
priced diff one.plan one.plan >out.json || fail "diff"
[ "$(grep -o '"launch_share":1.0' out.json | wc -l)" = 2 ] &&
  [ "$(field diff_ps out.json)" = 0 ] || { cat out.json; fail "diff"; }
"$dnnc" show one.plan --profile one.profile 2>message && fail "no cluster"
grep -q "name them with --cluster FILE" message || { cat message; fail "no cluster"; }
cluster 3
simulate --ranks 1 --profile one.profile >out.json 2>message || fail "other cores"
[ "$(field launches out.json)" = 0 ] &&
  grep -q "launches of the profile had 1 cores, and a rank of cluster 'one' has 3" message ||
  { cat out.json message; fail "other cores"; }
for path in folder pipe missing.profile; do
  simulate --ranks 1 --profile $path 2>message && fail "a profile from $path"
  grep -q "'$path'" message || { cat message; fail "a profile from $path"; }
done
printf 'path,phase,kernel,cores,ps,runs\na,forward,12,1,1,1\n' >wrong.profile
simulate --ranks 1 --profile wrong.profile 2>message && fail "a wrong profile"
grep -q "^wrong.profile:2:11: error: kernel '12' of a profile is not 16 hex digits" message ||
  { cat message; fail "a wrong profile"; }

# ---- paced runs ----
# Launches so much longer that a step takes 80 ms, on a fast machine too.
awk -F, -v OFS=, -v s="$sum" 'NR > 1 { $5 = sprintf("%.0f", $5 * 0.08 / s) } 1' one.profile >slow.profile
median() { grep -o '"ms":[0-9.]*' "$1" | cut -d: -f2 | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
want=80
run --paced slow.profile --steps 20 --json save=checkpoints save_every=2 >out.json 2>message ||
  { cat message; fail "a paced run"; }
close "$(median out.json)" "$want" 0.01 ||
  fail "a paced step takes $(median out.json) ms, its launches $want"
echo "a paced step takes $(median out.json) ms, its launches $want ms"
[ "$(grep -c '"paced":true' out.json)" = 21 ] && ! grep -q sha256 out.json ||
  { cat out.json; fail "every line says that it is paced"; }
[ "$(field loss out.json)" = null ] || fail "a loss of a paced run"
[ -e checkpoints ] && fail "a paced run has written a checkpoint"
run --paced one.profile --steps 2 >words 2>message || fail "a paced run in words"
[ "$(grep -c 'paced: no values are computed' words)" = 2 ] &&
  grep -q "this run is paced" message && ! grep -q loss words ||
  { cat words message; fail "words of a paced run"; }
run --paced one.profile --steps 2 --quiet --trace trace.json &&
  grep -q '"rank 0 (paced)"' trace.json || fail "a paced timeline"

# A bundle stays paced, and says so.
run --paced one.profile --steps 1 --quiet -o kept.bundle || fail "a paced bundle"
grep -q '"paced": true' kept.bundle/bundle.json || fail "its manifest"
kept.bundle/run --steps 1 | grep -q "paced: no values" || fail "its run"
for option in --resume --eval --sample '--load checkpoints' '--profile p' '--transfers p'; do
  kept.bundle/run $option >message 2>&1 && fail "a paced bundle with $option"
  grep -q 'this program is paced: it computes nothing' message ||
    { cat message; fail "a paced bundle with $option"; }
done

wrong() { # MESSAGE OPTION...
  local text=$1
  shift
  run --steps 1 --quiet "$@" >message 2>&1 && fail "'$*' ends well"
  grep -q -- "$text" message || { cat message; fail "'$*'"; }
}
wrong "error: --paced and --resume exclude each other" --paced one.profile --resume
wrong "error: --paced and --load exclude each other" --paced one.profile --load x
wrong "error: --paced and --profile exclude each other" --paced one.profile --profile x
wrong "error: --paced and --transfers exclude each other" --paced one.profile --transfers x
wrong "'dnnc run' takes --cluster with --paced or --plan auto only" --cluster one.cluster
head -n 20 one.profile >part.profile
wrong "has no time for [0-9]* of the [0-9]* launches of a step" --paced part.profile
wrong "help: measure them with 'dnnc run --profile FILE'" --paced part.profile
sed '$s/,1,/,2,/' one.profile >cores.profile
wrong "has launches with several numbers of cores" --paced cores.profile
wrong "wrong.profile:2:11: error" --paced wrong.profile
wrong "cannot open 'missing.profile'" --paced missing.profile
wrong "not supported yet: a paced run on the 2 groups" --paced one.profile \
  --cluster "$root/models/islands.cluster" --target cpu
wrong "more than cluster 'one' has" --paced one.profile --cluster one.cluster --ranks 3
cluster 1
run --steps 1 --paced part.profile --cluster one.cluster --quiet ||
  fail "formulas for what the profile lacks"

# ---- a stop ----
# stops PROFILE OPTION...: each launch sleeps for 20 s, and SIGTERM ends the run at once.
stops() {
  local profile=$1 pid begin ms code
  shift
  awk -F, -v OFS=, 'NR > 1 { $5 = "20000000000000" } 1' "$profile" >slow.profile
  "$dnnc" run $model --microbatches 2 --paced slow.profile --steps 1000 "$@" >out 2>message &
  pid=$!
  for i in $(seq 600); do
    grep -q 'this run is paced' message && break
    sleep 0.1
  done
  sleep 0.3
  begin=$(date +%s%N)
  kill -TERM $pid || { cat message; fail "no paced run $* to stop"; }
  wait $pid
  code=$?
  ms=$((($(date +%s%N) - begin) / 1000000))
  [ $code = 143 ] || { cat message; fail "a paced run $* ends with $code after SIGTERM"; }
  in_time $ms 1000 || fail "a paced run $* ends $ms ms after SIGTERM"
  grep -q checkpoint message && { cat message; fail "a paced run promises a checkpoint"; }
  [ -s out ] && { cat out; fail "a step of a paced run that takes minutes"; }
  echo "a paced run ends $ms ms after SIGTERM"
}
stops one.profile

# ---- two ranks ----
has_mpi || { echo "profile: one rank; two ranks need mpirun"; exit 0; }
run --ranks 2 --steps 3 --no-save --quiet --profile two.profile --transfers two.transfers ||
  fail "a profile of two ranks"
grep -q '^all_reduce,2x1,[0-9]*,[0-9]*,[0-9]*,[0-9]*$' two.transfers ||
  { cat two.transfers; fail "transfers of two ranks"; }
run --ranks 2 --paced two.profile --steps 3 --json >out.json 2>message ||
  { cat message; fail "two paced ranks"; }
[ "$(grep -c '"paced":true' out.json)" = 4 ] || fail "two paced ranks"
stops two.profile --ranks 2
echo "profile: measured, priced and paced, on one rank and on two"

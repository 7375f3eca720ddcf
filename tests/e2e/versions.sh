#!/bin/bash
# Stages that keep versions of their parameters (schedule = pipedream, vertical, and 2bw), with replicas of stages too, train to the bits of a reference that
# keeps the history of weights itself, over 40 minibatches with two evaluations and a checkpoint between, in
# runs whose ranks are delayed at random (5, or RUNS); and resumed from the checkpoint.  A reference whose stage 0 reads
# versions that are one older or newer differs.  The model does not round but for the update.
#   versions.sh DNNC [RUNS]
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
runs=${2:-5}
model=$root/tests/e2e/versions.dnn
python3 "$root/tests/e2e/versions.py" data . || fail "the data"
cp "$model" model.dnn
export OMP_NUM_THREADS=1

check() { # checkpoint layers arguments...
  python3 "$root/tests/e2e/versions.py" check "$1" log "$2" 40 --evaluations 15,30 $groups $size "${@:3}"
}
groups= size=

# write NAME CUT...: a plan of these cuts, under $schedule with $microbatches.
write() {
  local cut
  printf 'mesh { pipe = %d }\nplan {\n  schedule = %s\n' $# "$schedule" >"$1.plan"
  printf '  microbatches = %d\n' "$microbatches" >>"$1.plan"
  for cut in "${@:2}"; do printf '  cut after %s\n' "$cut"; done >>"$1.plan"
  echo '}' >>"$1.plan"
}

train() { # plan arguments...
  rm -rf made.ckpt
  "$dnnc" run model.dnn --plan "$1.plan" --steps 40 save=made.ckpt eval_every=15 save_every=20 --json "${@:2}" \
    >log 2>err </dev/null || { cat err; fail "$1 does not train"; }
}

# held PLAN LAYERS VERSIONS REPLICAS: the persistent bytes of each rank are so many versions of its parameters,
# one of their momenta, and the step.  Of more than 4 ranks the fullest alone is shown.
held() {
  "$dnnc" show "$1.plan" --model model.dnn 2>err | sed -n 's/^  persistent *\([0-9]*\).*/\1/p' >persistent
  awk -v layers="$2" -v versions="$3" -v replicas="$4" 'BEGIN {
    split("120 144 144 72", bytes); n = split(layers, of, ","); split(versions, held, ","); split(replicas, ranks, ",")
    for (s = 1; s <= n; s++) {
      sum = 0
      for (i = 0; i < of[s]; i++) sum += int((bytes[++layer] + 63) / 64) * 64
      bytes_held = sum * (held[s] + 1) + 64
      if (bytes_held > most) most = bytes_held
      for (i = 0; i < ranks[s]; i++) line[++n_ranks] = bytes_held
    }
    for (i = 1; i <= n_ranks && n_ranks <= 4; i++) print line[i]
    if (n_ranks > 4) print most
  }' | cmp -s - persistent || { cat persistent; fail "$1 does not hold $3 versions"; }
}

# compared PLAN LAYERS VERSIONS REPLICAS
compared() {
  local words=(--replicas "$4")
  case $schedule in *vertical*) words+=(--vertical) ;; 2bw) words+=(--two) ;; esac
  held "$1" "$2" "$3" "$4"
  train "$1"
  check made.ckpt "$2" --drains 15,20,30 "${words[@]}" >/dev/null || fail "$1, $schedule"
  for shift in 1 -1; do
    check made.ckpt "$2" --drains 15,20,30 "${words[@]}" --shift $shift >differs &&
      fail "$1, $schedule: versions by $shift"
    grep -q '^loss of minibatch' differs || { cat differs; fail "$1: what differs by $shift"; }
  done
}

one() { # name layers versions cuts...
  write "$1" "${@:4}"
  compared "$1" "$2" "$3" "${3//[0-9]/1}"
}

# replicas NAME LAYERS VERSIONS REPLICAS STAGE...: ranks in the order of stages, under $schedule with $microbatches.
replicas() {
  local first=0 number=0 n
  printf 'plan {\n  schedule = %s\n  microbatches = %d\n' "$schedule" "$microbatches" >"$1.plan"
  for n in ${4//,/ }; do
    printf '  stage %d: %s on %d..%d\n' $number "${@:5+number:1}" $first $((first + n - 1)) >>"$1.plan"
    first=$((first + n)) number=$((number + 1))
  done
  echo '}' >>"$1.plan"
  compared "$1" "$2" "$3" "$4"
}

microbatches=1 schedule='pipedream(vertical = true)'
one two 2,2 2,2 'x[1]'
one three 1,2,1 3,3,3 'x[0]' 'x[2]'
one four 1,1,1,1 4,4,4,4 'x[0]' 'x[1]' 'x[2]'
check made.ckpt 1,1,1,1 --drains 15,20,30 >differs && fail "vertical is what pipedream is"
schedule=pipedream
one two 2,2 2,1 'x[1]'
one three 1,2,1 3,2,1 'x[0]' 'x[2]'
one four 1,1,1,1 4,3,2,1 'x[0]' 'x[1]' 'x[2]'
microbatches=2 schedule=2bw
one double-two 2,2 2,2 'x[1]'
microbatches=4
one double-two 2,2 2,2 'x[1]'
one double-three 1,2,1 2,2,2 'x[0]' 'x[2]'
one double-four 1,1,1,1 2,2,2,2 'x[0]' 'x[1]' 'x[2]'
check made.ckpt 1,1,1,1 --drains 15,20,30 --vertical >differs && fail "2bw is what vertical is"
echo "2, 3 and 4 stages: equal bits"

# Layers of two stages have another rate and momentum than the rest.
sed '$ s/^}/  group linear[1], linear[3] { lr = 0.5x; momentum = 0.25 }\n}/' "$model" >model.dnn
schedule=pipedream microbatches=1 groups="--groups 1:0.5:0.25,3:0.5:0.25"
one grouped 1,2,1 3,2,1 'x[0]' 'x[2]'
groups="" check made.ckpt 1,2,1 --drains 15,20,30 >differs && fail "the group changes nothing"
schedule=2bw microbatches=4
one grouped 2,2 2,2 'x[1]'
groups=""
cp "$model" model.dnn
echo "a group of parameters: equal bits"

schedule=pipedream microbatches=1
replicas replicas-111 1,2,1 3,2,1 1,1,1 'x[0]' 'x[1], x[2]' 'linear[3]'
replicas replicas-21 2,2 2,1 2,1 'x[0], x[1]' 'x[2]'
replicas replicas-31 2,2 2,1 3,1 'x[0], x[1]' 'x[2]'
replicas replicas-12 2,2 3,1 1,2 'x[0], x[1]' 'x[2]'
replicas replicas-221 1,2,1 3,2,1 2,2,1 'x[0]' 'x[1], x[2]' 'linear[3]'
schedule='pipedream(vertical = true)'
replicas vertical-21 2,2 2,4 2,1 'x[0], x[1]' 'x[2]'
replicas vertical-221 1,2,1 3,3,6 2,2,1 'x[0]' 'x[1], x[2]' 'linear[3]'
# Under 2bw replicas share out the micro-batches of a batch.
schedule=2bw microbatches=4
replicas shared-111 1,2,1 2,2,2 1,1,1 'x[0]' 'x[1], x[2]' 'linear[3]'
replicas shared-221 1,2,1 2,2,2 2,2,1 'x[0]' 'x[1], x[2]' 'linear[3]'
replicas shared-12 2,2 2,2 1,2 'x[0], x[1]' 'x[2]'
microbatches=2
replicas shared-21 2,2 2,2 2,1 'x[0], x[1]' 'x[2]'
sed 's/B = 4/B = 6/; s/eval = 8/eval = 12/' "$model" >model.dnn
python3 "$root/tests/e2e/versions.py" data . 6 || fail "the data"
microbatches=3 size="--batch 6"
replicas shared-31 2,2 2,2 3,1 'x[0], x[1]' 'x[2]'
"$dnnc" verify model.dnn --plan shared-31.plan --json >out.json 2>err || { cat out.json err; fail "verify of shared-31"; }
python3 "$root/tests/e2e/versions.py" data . || fail "the data"
cp "$model" model.dnn
microbatches=1 size=
echo "replicas: equal bits"

# ---- the price ----

# In the steady state no rank of four equal stages waits; under 1f1b they do for two fifths of a step.
price() { # schedule micro-batches
  printf 'mesh { pipe = 4 }\nplan {\n  schedule = %s\n  microbatches = %d\n' "$1" "$2" >equal.plan
  printf '  cut after x[%d]\n' 0 1 2 >>equal.plan
  echo '}' >>equal.plan
  "$dnnc" simulate "$root/tests/e2e/versions_equal.dnn" --plan equal.plan --cluster four.cluster >priced 2>err ||
    { cat err; fail "the price of $1"; }
  sed -n 's/.* bubble \([0-9.]*\) %.*/\1/p' priced >bubbles
  [ "$(wc -l <bubbles)" = 4 ] || { cat priced; fail "$1: four ranks"; }
}
sed 's/cluster laptop/cluster four/; s/count = 2/count = 4/; s/kind = shared/kind = switch/; s|8GB/s|100GB/s|' \
  "$root/models/laptop.cluster" >four.cluster
price pipedream 1
awk '$1 > 1 { exit 1 }' bubbles || { cat priced; fail "pipedream waits"; }
price 2bw 4
awk '$1 > 4 { exit 1 }' bubbles || { cat priced; fail "2bw waits"; }
price 1f1b 4
awk '$1 < 35 { exit 1 }' bubbles || { cat priced; fail "1f1b does not wait"; }
echo "the steady state of four equal stages has no idle time"

# Three replicas of three layers beside the rank of the fourth one are faster than one rank of each, and that rank then
# waits for less than a tenth of a step, for the sum of the others' gradients.
replicated() { # model plan argument...: the step of a plan with replicas, in ms
  "$dnnc" simulate "$1" "${@:3}" --plan "$2" --cluster four.cluster --json >priced.json 2>err || { cat err; fail "the price of $2"; }
  grep -o '"step_s":[^,]*' priced.json | cut -d: -f2
}
stages() { # stage ..., under $schedule with $microbatches
  printf 'plan {\n  schedule = %s\n  microbatches = %d\n' "$schedule" "$microbatches"
  printf '  stage %s\n' "$@"
  echo '}'
}
schedule=2bw microbatches=6
stages '0: s, x[0], x[1], x[2] on 0..2' '1: linear[3] on 3' >three.plan
stages '0: s, x[0], x[1], x[2] on 0' '1: linear[3] on 1' >alone.plan
shared=$(replicated "$root/tests/e2e/versions_equal.dnn" three.plan B=384) || exit 1
# The first is that of the plan: its fullest rank.
grep -o '"bubble":[0-9.]*' priced.json | cut -d: -f2 | sed -n 2,4p | awk '$1 > 0.02 { exit 1 }' ||
  { cat priced.json; fail "replicas that share out micro-batches wait"; }
alone=$(replicated "$root/tests/e2e/versions_equal.dnn" alone.plan B=384) || exit 1
awk "BEGIN { exit !($shared < 0.85 * $alone) }" || fail "three replicas of 2bw: $shared s, one: $alone s"
schedule=pipedream microbatches=1
stages '0: s, x[0], x[1], x[2] on 0..2' '1: linear[3] on 3' >three.plan
stages '0: s, x[0], x[1], x[2] on 0' '1: linear[3] on 1' >alone.plan
three=$(replicated "$root/tests/e2e/versions_equal.dnn" three.plan) || exit 1
grep -q '"steps_of_period":3,' priced.json || { cat priced.json; fail "the steps of a period"; }
grep -o '"bubble":[0-9.]*' priced.json | cut -d: -f2 | awk '$1 > 0.1 { exit 1 }' || { cat priced.json; fail "balanced replicas wait"; }
alone=$(replicated "$root/tests/e2e/versions_equal.dnn" alone.plan) || exit 1
awk "BEGIN { exit !($three < 0.8 * $alone) }" || fail "three replicas: $three s, one: $alone s"
# PipeDream's plan of VGG-16 (benchmarks/async_plans.py).
stages '0: unit, adaptive_avgpool on 0..2' '1: linear on 3' >vgg.plan
vgg=$(replicated "$root/models/vgg16.dnn" vgg.plan batch=4) || exit 1
"$dnnc" show vgg.plan --model "$root/models/vgg16.dnn" batch=4 --cluster four.cluster >out 2>err && fail "a timeline of replicas"
grep -q "not supported yet: the timeline of replicas under the schedule 'pipedream'" err || { cat err; fail "why there is none"; }
echo "three replicas take $three s for a batch, one rank $alone s; VGG-16 $vgg s"

# So have 16 stages.
sed -e 's/  x = linear\[D -> D\](x \* s)/  x = x * s\n  repeat i in 16 { x = linear[D -> D](x) }/' \
  -e '/^  x = linear/d' -e 's/  return linear.*/  return x/' \
  "$root/tests/e2e/versions_equal.dnn" >deep.dnn
sed 's/count = 4/count = 16/' four.cluster >deep.cluster
printf 'mesh { pipe = 16 }\nplan {\n  schedule = pipedream\n  microbatches = 1\n' >deep.plan
printf '  cut after linear[%d]\n' $(seq 0 14) >>deep.plan
echo '}' >>deep.plan
"$dnnc" simulate deep.dnn --plan deep.plan --cluster deep.cluster >priced 2>err || { cat err; fail "the price of 16 stages"; }
sed -n 's/.* bubble \([0-9.]*\) %.*/\1/p' priced >bubbles
[ "$(wc -l <bubbles)" -ge 3 ] && awk '$1 > 1.5 { exit 1 }' bubbles || { cat priced; fail "16 stages wait"; }
echo "16 equal stages neither"

# ---- verified, and paced ----

"$dnnc" verify model.dnn --plan four.plan --json >out.json 2>err || { cat out.json err; fail "verify"; }
grep -q '"versions":"pipedream"' out.json || { cat out.json; fail "verify names no versions"; }
for plan in replicas-21 replicas-31 replicas-12 replicas-221 vertical-221 shared-21 shared-12 shared-221; do
  "$dnnc" verify model.dnn --plan $plan.plan --json >out.json 2>err || { cat out.json err; fail "verify of $plan"; }
done

# A period takes as long as the launches of the rank that works most, behind those that fill the pipeline.
printf 'path,phase,kernel,cores,ps,runs\nnone,forward,0000000000000000,1,1,1\n' >formulas.profile
printf 'cluster slow {\n device = d\n level node { count = 4; link = 1GB/s }\n}\n' >slow.cluster
echo 'device d { base = cpu; cores = 1; memory = 1GiB; flops_f32 = 1M }' >>slow.cluster
"$dnnc" run model.dnn --plan four.plan --paced formulas.profile --cluster slow.cluster --steps 12 --no-save --json \
  >paced.json 2>err </dev/null || { cat err; fail "a paced run"; }
[ "$(grep -c '"paced":true' paced.json)" = 13 ] || { cat paced.json; fail "steps of a paced run"; }
is=$(grep -o '"ms":[^,]*' paced.json | cut -d: -f2 | sort -n | sed -n 6p)
want=$("$dnnc" simulate model.dnn --plan four.plan --cluster slow.cluster --json 2>err | grep -o '"step_s":[^,]*' | cut -d: -f2)
awk "BEGIN { exit !($is > 900 * $want && $is < 1500 * $want) }" || fail "a paced step takes $is ms, not $want s"
echo "a paced step takes $is ms, $want s as predicted"

# ---- delayed ranks, over MPI and as threads whose sends wait ----

real=$(command -v "${CC:-cc}")
for harness in delays stage_matrix; do
  "$real" -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -c -o "$harness.o" "$root/tests/e2e/$harness.c" ||
    fail "cannot compile $harness.c"
done

# build NAME SYMBOL OBJECT PLAN: a program that links the object in front.
build() {
  cat >"$1-cc" <<END
#!/bin/sh
case " \$* " in
*libdnnrank.a*) exec "$real" -Wl,--wrap=$2 "$work/$3.o" "\$@" ;;
esac
exec "$real" "\$@"
END
  chmod +x "$1-cc"
  CC=$work/$1-cc "$dnnc" build model.dnn --plan "$4.plan" -o "$1" "save=$work/made.ckpt" eval_every=15 save_every=20 \
    --quiet 2>err || { cat err; fail "$1 is not built"; }
}

# delayed PLAN LAYERS WORD...: over MPI, and as threads.
delayed() {
  local plan=$1
  build late comm_create delays "$plan"
  for seed in $(seq "$runs"); do
    rm -rf made.ckpt
    DNNC_DELAYS=$seed:400 late/run --steps 40 --json >log 2>err </dev/null || { cat err; fail "delays $seed"; }
    check made.ckpt "${@:2}" --drains 15,20,30 >/dev/null || fail "$plan, delays $seed"
  done
  echo "$plan, $runs runs of delayed ranks: equal bits"
  build matrix rank_main stage_matrix "$plan"
  for seed in $(seq "$runs"); do
    timeout -k 5 60 matrix/rank-0000 threads "$seed" 400 6 >threads.out 2>err || { cat err; fail "threads, seed $seed"; }
    sort threads.out >"threads.$((seed > 1))"
    cmp -s threads.0 "threads.$((seed > 1))" || fail "$plan, threads, seed $seed: other results"
  done
  mpirun --oversubscribe --bind-to none -n "$(find matrix -name 'rank-*' | wc -l)" matrix/rank-0000 mpi 1 400 6 2>err | sort >mpi.out
  cmp -s threads.0 mpi.out || { cat err mpi.out; fail "$plan: other results over MPI"; }
  echo "$plan, $runs runs as threads: the bits of MPI"
}

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
delayed double-four 1,1,1,1 --two
delayed replicas-221 1,2,1 --replicas 2,2,1
# ---- resumed ----

newest() { sed 's/step-0*//' made.ckpt/latest; }

# A run that is at work behind step 20, as $run.
start() {
  rm -rf made.ckpt
  DNNC_DELAYS=1:20000 late/run --steps 40 --json >log 2>err </dev/null &
  run=$!
  for _ in $(seq 300); do
    [ "$(newest 2>/dev/null)" = 20 ] && break
    sleep 0.05
  done
}

works() { # a rank of it
  find /proc -maxdepth 2 -name exe -lname "$work/late/*" 2>/dev/null | grep -q .
}

# killed LAYERS WORD...: the program that was built last.
killed() {
  start
  kill -KILL $run
  wait $run 2>/dev/null
  for _ in $(seq 200); do
    works || break
    sleep 0.05
  done
  works && fail "ranks outlive a run that is killed"
  [ "$(newest)" = 20 ] || fail "the run was killed after step $(newest)"
  awk -F '[:,]' '/^{"step"/ && $2 <= 20' log >kept
  late/run --steps 40 --resume --json >>kept 2>err </dev/null || { cat err; fail "resumed after a kill"; }
  mv kept log
  check made.ckpt "$1" --drains 15,20,30 "${@:2}" >differs || { cat differs; fail "resumed after a kill"; }
  echo "killed and resumed: equal bits"
}

# A run goes on with other replicas.
rm -rf made.ckpt
part() { # plan step argument...
  "$dnnc" run model.dnn --plan "$1.plan" --steps "$2" save=made.ckpt eval_every=15 save_every=20 --json "${@:3}" \
    2>err </dev/null || { cat err; fail "$1 until step $2"; }
}
part shared-21 20 | grep -v '^{"step":20,"validation_loss"' >log
part shared-12 40 --resume >>log
check made.ckpt 2,2 --drains 15,20,30 --two >differs || { cat differs; fail "resumed with other replicas"; }
echo "resumed with other replicas: equal bits"

delayed shared-221 1,2,1 --replicas 2,2,1 --two
killed 1,2,1 --replicas 2,2,1 --two
delayed four 1,1,1,1
killed 1,1,1,1

start
kill -TERM $run
wait $run
[ $? = 143 ] || { cat err; fail "stopped by a signal"; }
stop=$(newest)
[ "$stop" -gt 20 ] && [ "$stop" -lt 40 ] || fail "stopped after step $stop"
late/run --steps 40 --resume --json >>log 2>err </dev/null || { cat err; fail "resumed after $stop"; }
# A run that is stopped at a step does not evaluate it.
evaluations=15,30
[ "$stop" != 30 ] || evaluations=15
check made.ckpt 1,1,1,1 --drains "15,20,$stop,30" --evaluations $evaluations >differs ||
  { cat differs; fail "resumed after $stop"; }
echo "stopped and resumed: equal bits"

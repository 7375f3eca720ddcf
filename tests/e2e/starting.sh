#!/bin/bash
# Ranks that cannot start, and who reads what they print: the rank and the cause
# are named at once, the start has a limit, and several ranks end as one does
# where standard output is full, closed or no longer read.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
cat >tiny.dnn <<'M'
dim B = 4, A = 3
net m(x: [B, A]) -> [] {
  param w: [A] = normal(0.5)
  return mean(x * w * x * w)
}
data d { x: [B, A] = synthetic() }
train { loss = m(d.x); optimizer = sgd(lr = 0.1); steps = 100000 }
M
for n in 1 2; do
  "$dnnc" build tiny.dnn --ranks $n -o b$n --quiet || fail "build"
done

# ---- rank 1 cannot start ----

starts() { # what, expected text of the first line, seconds, arguments of run
  local what=$1 text=$2 limit=$3 begin code
  shift 3
  begin=$(date +%s)
  c/run --no-save --json --steps 3 "$@" >out.json 2>err
  code=$?
  [ $code = 3 ] || { cat err; fail "$what: exit $code, not 3"; }
  in_time $((1000 * ($(date +%s) - begin))) $((1000 * limit)) || fail "$what: longer than $limit s"
  head -n 1 err | grep -qF -- "$text" || { cat err; fail "$what: no '$text'"; }
  [ "$(grep -c . err)" -le 2 ] || { cat err; fail "$what: too much talk"; }
  [ ! -s out.json ] || fail "$what: a step was made"
  [ -z "$(pgrep -f "$work/c/rank-000")" ] || fail "$what: processes are left"
  echo "$what: $(head -n 1 err)"
}
broken() { # a fresh bundle without rank 1, or with this script
  rm -rf c && cp -r b2 c && rm c/rank-0001
  [ $# = 0 ] || { printf '#!/bin/bash\n%s\n' "$1" >c/rank-0001; chmod +x c/rank-0001; }
}
at="error: cannot start rank 1: '$work/c/rank-0001'"
lost="error: lost rank 1: '$work/c/rank-0001'"
broken
starts missing "$at is missing; build the bundle again" 10
head -c 60000 b2/rank-0001 >c/rank-0001 && chmod +x c/rank-0001
starts truncated "$at is truncated: it has 60000 of at least " 10
: >c/rank-0001
starts empty "$at is empty" 10
echo 'not a program' >c/rank-0001
starts text "$at is not a program" 10
cp b2/rank-0001 c/rank-0001 && chmod a-x c/rank-0001
starts mode "$at is not executable" 10
printf '#!/nothing/there\n' >c/rank-0001 && chmod +x c/rank-0001
starts interpreter "$at: No such file or directory" 20
broken 'exit 0'
starts "exit 0" "$lost ended" 20
grep -q 'before it joined the other ranks$' err || fail "exit 0: no cause"
broken 'exit 127'
starts "exit 127" "$lost ended" 20
# shellcheck disable=SC2016
broken 'kill -SEGV $$'
starts "signal" "$lost " 20
broken 'exec sleep 1000'
starts "no MPI" "error: the ranks did not start within 3 s: rank 1, '$work/c/rank-0001', runs, but never reached MPI" 20 --start-timeout 3
grep -q '^help: --start-timeout SECONDS raises the limit$' err || fail "no help"
rm -f c/rank-0000
starts "two missing" "error: cannot start rank 0: '$work/c/rank-0000' is missing" 10

# Without the launcher a rank that waits gives up by itself.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun -q --oversubscribe -n 1 b2/rank-0000 --no-save --start-timeout 1 : -n 1 sleep 60 >out 2>err
[ $? = 3 ] || { cat err; fail "waiting without a launcher: not exit 3"; }
grep -q '^error: the other ranks have not joined rank 0 through MPI within the limit of --start-timeout' err ||
  { cat err; fail "waiting without a launcher: no message"; }

# ---- `run` finds its bundle ----

finds() { # what, command
  "${@:2}" --no-save --json --steps 1 >out 2>err || { cat err; fail "$1"; }
  grep -q '"final":true,"steps":1' out || fail "$1: no end"
}
mkdir -p elsewhere && ln -s ../b2/run elsewhere/train && ln -s elsewhere/train again
# shellcheck disable=SC2031
(cd / && PATH=$work/b2:$PATH && finds '$PATH' run) || exit 1
finds "a link" elsewhere/train
finds "a link to a link" ./again
(cd b2 && finds "its own folder" ./run) || exit 1

# ---- more ranks than cores, and copies of dnnc ----

shared="note: 2 ranks share 1 core, so they take turns"
for words in "" --quiet --json; do
  taskset -c "$(taskset -cp $$ | grep -o '[0-9]*' | tail -n 1)" b2/run --no-save --steps 1 $words >out 2>err ||
    { cat err; fail "2 ranks on 1 core"; }
  n=$(grep -cFx "$shared" err)
  [ "$n" = $([ -z "$words" ] && echo 1 || echo 0) ] || { cat err; fail "$n notes on 2 ranks on 1 core, with '$words'"; }
done
b1/run --no-save --steps 1 2>&1 | grep -q share && fail "1 rank shares cores"
for how in "mpirun --allow-run-as-root --oversubscribe -q -n 2" "env SLURM_STEP_NUM_TASKS=2"; do
  $how "$dnnc" run tiny.dnn --no-save --steps 1 >out 2>err && fail "$how: copies train apart"
  [ ! -s out ] || { cat out; fail "$how: a copy has trained"; }
  [ "$(grep -c "^dnnc: error: 2 copies of 'dnnc run' were started" err)" = 1 ] || { cat err; fail "$how: not noticed"; }
  grep -q "^help: without mpirun, 'dnnc run tiny.dnn --ranks 2' starts 2 ranks" err || { cat err; fail "$how: no help"; }
  # Neither the silent copies nor a search come before that.
  $how "$dnnc" run tiny.dnn --no-save --steps 1 --plan auto >out 2>>err && fail "$how: copies search"
  [ "$(grep -c "^dnnc: error: 2 copies of 'dnnc run' were started" err)" = 2 ] && ! grep -q "fault of dnnc\|^plan: " err ||
    { cat err; fail "$how: with a search"; }
done
mpirun --allow-run-as-root -q -n 1 "$dnnc" run tiny.dnn --no-save --steps 1 >out 2>err ||
  { cat err; fail "one copy is refused"; }

# ---- what is found before a rank starts ----

early() { # what, exit code, text, command: at once, and no rank starts
  local what=$1 want=$2 text=$3 begin code
  shift 3
  begin=$(date +%s%N)
  "$@" >out 2>err
  code=$?
  [ $code = "$want" ] || { cat err; fail "$what: exit $code, not $want"; }
  in_time $((($(date +%s%N) - begin) / 1000000)) 2000 || fail "$what: found late"
  grep -qF -- "$text" err || { cat err; fail "$what: no '$text'"; }
  grep -q 'ranks share\|[0-9] parameters' err && { cat err; fail "$what: ranks were started"; }
  [ ! -s out ] || fail "$what: a step was made"
}
mkdir -p m.ckpt && : >m.ckpt/lock
exec 7>m.ckpt/lock && flock 7
taken="another run writes to 'm.ckpt'"
for n in 1 2; do
  early "a folder that is taken, $n ranks" 1 "error: $taken" b$n/run --steps 1
  early "a folder that is taken, dnnc, $n ranks" 1 "dnnc: error: $taken" "$dnnc" run tiny.dnn --ranks $n --steps 1
done
b1/run --steps 1 --no-save --quiet >out 2>err || { cat err; fail "--no-save needs no folder"; }
exec 7>&-
other="is damaged or of another bundle; build it again"
for change in 's/"model_hash": "./&0/' 's/"plan_hash": "./&0/' 's/"ranks": 2/"ranks": 3/' 's/.*//'; do
  rm -rf c && cp -r b2 c && sed -i "$change" c/bundle.json
  early "bundle.json, $change" 1 "error: '$work/c/bundle.json' $other" c/run --steps 1 --no-save
done
rm -rf c && cp -r b2 c && echo '# more' >>c/plan.plan
early "plan.plan" 1 "error: '$work/c/plan.plan' $other" c/run --steps 1 --no-save
cp b1/plan.plan c/plan.plan
early "plan.plan of another bundle" 1 "error: '$work/c/plan.plan' $other" c/run --steps 1 --no-save
rm c/plan.plan c/bundle.json
c/run --steps 1 --no-save --quiet >out 2>err || { cat err; fail "a bundle of its programs alone"; }
sed 's/B = 4/B = 1073741824/; s/synthetic()/synthetic(records = 4294967296)/' tiny.dnn >wide.dnn
most=$((1 << 15))
early "too many ranks to run" 1 "'dnnc run' takes at most 4096 ranks, not 4097" "$dnnc" run wide.dnn --ranks 4097
for n in $((most + 1)) 1000000000; do
  early "$n ranks of a bundle" 1 "'dnnc build' takes at most $most ranks, not $n" "$dnnc" build wide.dnn --ranks $n
  early "$n ranks to verify" 1 "'dnnc verify' takes at most $most ranks, not $n" "$dnnc" verify wide.dnn --ranks $n
done
"$dnnc" build wide.dnn --ranks $most --quiet -o most.bundle || fail "a bundle of $most ranks"
[ "$(ls most.bundle | grep -c '^rank-')" = $most ] || fail "a bundle of $most ranks lacks some"
rm -rf most.bundle
# A packed file whose header announces other than what it holds.
cat >packed.dnn <<'M'
dim B = 4, A = 4
net packed(x: [B, A]) -> [] {
  param w: [A] = normal(0.5)
  return mean(x * w)
}
data d { x: [B, A] = idx("x.gz"); order = sequential }
train { loss = packed(d.x); optimizer = sgd(lr = 0.1); steps = 2 }
M
idx() { # RECORDS, and so many bytes after the header
  { printf "\\0\\0\\010\\002\\0\\0\\$(printf %03o $(($1 / 256)))\\$(printf %03o $(($1 % 256)))\\0\\0\\0\\004"
    head -c "$2" /dev/zero; } | gzip >x.gz
}
idx 4096 16384
"$dnnc" run packed.dnn --quiet >out 2>err || { cat err; fail "a packed file"; }
for bytes in 16383 16385; do
  rm -rf packed.ckpt
  idx 4096 $bytes
  "$dnnc" run packed.dnn --quiet >out 2>err
  [ $? = 1 ] || { cat err; fail "a packed file of $bytes bytes"; }
  grep -q "'x.gz' \(is too short: its header announces\|holds more than\)" err || { cat err; fail "$bytes bytes"; }
  [ ! -s out ] && [ ! -d packed.ckpt/step-00000002 ] || fail "$bytes bytes: found after training"
done

# ---- who reads ----

for n in 1 2; do
  b$n/run --no-save --json --steps 20 >/dev/full 2>err
  [ $? = 3 ] || { cat err; fail "$n ranks, full: not exit 3"; }
  grep -qx 'error: standard output could not be written' err || { cat err; fail "$n ranks, full"; }
  [ "$(grep -c . err)" = 1 ] || { cat err; fail "$n ranks, full: too much talk"; }
  b$n/run --no-save --json --steps 20 >&- 2>err
  [ $? = 3 ] || { cat err; fail "$n ranks, closed: not exit 3"; }
  [ "$(grep -c . err)" = 1 ] || { cat err; fail "$n ranks, closed: too much talk"; }
  b$n/run --no-save --json 2>err | head -n 1 >out
  [ "${PIPESTATUS[0]}" = 3 ] || { cat err; fail "$n ranks, head: not exit 3"; }
  [ ! -s err ] || { cat err; fail "$n ranks, head: too much talk"; }
  grep -q '^{"step":1,' out || fail "$n ranks, head: no first line"
  # A slow reader gets every line, in order.
  b$n/run --no-save --json --steps 2000 2>err | { sleep 1; cat; } >out
  [ "${PIPESTATUS[0]}" = 0 ] || { cat err; fail "$n ranks, slow reader"; }
  grep -o '^{"step":[0-9]*,"loss"' out | grep -o '[0-9]*' | cmp - <(seq 2000) ||
    fail "$n ranks: lines are lost or in another order"
  tail -n 1 out | grep -q '^{"final":true' || fail "$n ranks: no last line"
done

# ---- without the launcher ----

# A rank that mpirun or srun starts limits how long threads spin at barriers,
# unless the user has said how they wait.
spins() { # what the OpenMP library took at last
  env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY OMP_DISPLAY_ENV=verbose "$@" \
    b1/rank-0000 --steps 1 --no-save 2>&1 | sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'/\1/p" | tail -n 1
}
[ "$(spins env)" = 1000 ] || fail "a rank spins $(spins env) times"
[ "$(spins GOMP_SPINCOUNT=7)" = 7 ] || fail "a given count of spins is ignored"
[ "$(spins OMP_WAIT_POLICY=active)" -gt 1000000 ] || fail "an active wait is ignored"

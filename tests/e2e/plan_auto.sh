#!/bin/bash
# `--plan auto` finds the plan that `dnnc plan` writes, for the machines that somebody names or
# for this one, and trains as under the file.
. "$(dirname "$0")/lib.sh"
systems=$root/benchmarks/systems
mlp=$systems/mlp.dnn
"$dnnc" cluster detect -o here.cluster || fail "detect"
grep -q 'count = [2-9]' here.cluster || skip "one core"

# ---- the machines: this one, $DNNC_CLUSTER, --cluster ----
has_mesh() { # SIZE MESSAGE COMMAND...
  "${@:3}" >out 2>message || { cat message; fail "$2"; }
  ranks=1
  for size in $(head -n 1 out | grep -o '= [0-9]*' | tr -d '= '); do ranks=$((ranks * size)); done
  [ "$ranks" = "$1" ] || { head -n 1 out; cat message; fail "$2"; }
  grep -q '^plan: .* ms a step (estimate), data parallelism [0-9.]* ms$' message || { cat message; fail "$2: no line"; }
}
has_mesh "$(sed -n 's/.*level node { count = \([0-9]*\);.*/\1/p' here.cluster)" "this machine" "$dnnc" ir "$mlp" --plan auto --after=partition
cluster() { # NAME RANKS
  printf 'device core { base = cpu; memory = 1GiB }\ncluster made {\n device = core\n level node { count = %d; link = 1GB/s }\n}\n' \
    "$2" >"$1.cluster"
}
cluster two 2
cluster four 4
has_mesh 4 "the environment" env DNNC_CLUSTER=four.cluster "$dnnc" ir "$mlp" --plan auto --after=partition
has_mesh 2 "--cluster" env DNNC_CLUSTER=four.cluster "$dnnc" ir "$mlp" --plan auto --cluster two.cluster --after=partition
has_mesh 2 "--ranks" "$dnnc" ir "$mlp" --plan auto --cluster four.cluster --ranks 2 --after=partition
# In a job of three machines a run stays on this one; a bundle is for all.
job() { env SLURM_JOB_NUM_NODES=3 SLURM_NTASKS_PER_NODE=2 "$dnnc" "$@"; }
job cluster detect >job.cluster || fail "a job"
if grep -q 'level network { count = 3' job.cluster; then
  has_mesh 6 "a job" job ir "$mlp" B=48 --plan auto --after=partition
  job run "$mlp" B=48 --data "$root" --plan auto --steps 1 --no-save >out 2>message || { cat message; fail "a run in a job"; }
  grep -q ' parameters, 2 ranks, ' message || { cat message; fail "a run in a job starts ranks of other machines"; }
fi

# ---- the plan that `dnnc plan` writes, and its training ----
losses() { grep -o '"loss":[^,}]*' "$1"; }
for model in "$mlp" "$root/models/chargpt.dnn L=1 B=4"; do
  "$dnnc" plan $model --cluster two.cluster --data "$root" --quiet -o found.plan || fail "plan $model"
  "$dnnc" run $model --data "$root" --plan auto --cluster two.cluster --steps 3 --no-save --json >auto.json 2>message ||
    { cat message; fail "run $model --plan auto"; }
  [ "$(grep -c '^plan: ' message)" = 1 ] || { cat message; fail "one line"; }
  "$dnnc" run $model --data "$root" --plan found.plan --steps 3 --no-save --json >file.json 2>message ||
    { cat message; fail "run $model --plan found.plan"; }
  [ "$(losses auto.json | wc -l)" -ge 3 ] && [ "$(losses auto.json)" = "$(losses file.json)" ] ||
    { losses auto.json; losses file.json; fail "other losses of $model"; }
done
"$dnnc" build "$mlp" --data "$root" --plan auto --cluster two.cluster -o auto.bundle 2>message || { cat message; fail "build"; }
"$dnnc" plan "$mlp" --cluster two.cluster --data "$root" --quiet -o found.plan
"$dnnc" build "$mlp" --data "$root" --plan found.plan -o file.bundle 2>message || { cat message; fail "build"; }
cmp auto.bundle/plan.plan file.bundle/plan.plan || fail "another plan in the bundle"

# simulate, show and verify take the word, too.
step() { "$dnnc" simulate "$mlp" --plan "$1" --cluster two.cluster --json 2>/dev/null >out.json && field step_s out.json; }
[ -n "$(step auto)" ] && [ "$(step auto)" = "$(step found.plan)" ] || fail "simulate"
"$dnnc" simulate "$mlp" --plan found.plan --plan auto --cluster two.cluster 2>/dev/null >out || fail "simulate two"
[ "$(awk '/^(auto|found.plan) / { print $2, $3 }' out | uniq | wc -l)" = 1 ] || { cat out; fail "simulate two"; }
"$dnnc" show auto --model "$mlp" --cluster two.cluster 2>/dev/null >out || fail "show"
grep -q "on 2 ranks of made" out || fail "show"
"$dnnc" verify "$mlp" --plan auto --cluster two.cluster >out 2>message ||
  { cat out message; fail "verify"; }

# ---- written lines are pins ----
{
  cat "$mlp"
  printf 'mesh { rows = 2 }\nplan { zero = 1 }\n'
} >pinned.dnn
"$dnnc" build pinned.dnn --data "$root" --plan auto --cluster two.cluster -o pinned.bundle --quiet || fail "pins"
grep -q '^  rows = 2$' pinned.bundle/plan.plan && grep -q '^  zero *= 1$' pinned.bundle/plan.plan ||
  { cat pinned.bundle/plan.plan; fail "pins"; }

# ---- a file of this name, and mistakes ----
cp found.plan auto
"$dnnc" build "$mlp" --data "$root" --plan ./auto -o file.bundle 2>message && ! grep -q '^plan: ' message || fail "a file named auto"
rm auto
wrong() { # CODE TEXT ARGUMENT...
  local code=$1 text=$2 got
  shift 2
  "$dnnc" "$@" >out 2>message
  got=$?
  [ $got = "$code" ] && grep -q -- "$text" message || { cat message; fail "'$*' ends with $got"; }
}
wrong 1 "takes --cluster with --plan auto only" build "$mlp" --cluster two.cluster
wrong 1 "^help: '--plan auto' searches" build "$mlp" --cluster two.cluster
wrong 1 "takes --cluster with --paced or --plan auto only" run "$mlp" --cluster two.cluster --ranks 2
wrong 1 "takes --effort with --plan auto only" run "$mlp" --effort 3
wrong 1 "takes --search with --plan auto only" run "$mlp" --search stages
wrong 1 "--search has no 'stage'" simulate "$mlp" --plan auto --cluster two.cluster --search stage
wrong 1 "takes lines with --plan that the plan must have" plan "$mlp" --cluster two.cluster --plan auto
wrong 1 "cannot open 'missing.cluster'" run "$mlp" --plan auto --cluster missing.cluster
wrong 1 "are not those of --target cuda" build "$mlp" --plan auto --cluster two.cluster --target cuda
{
  cat "$mlp"
  printf 'mesh { rows = 3 }\n'
} >many.dnn
wrong 1 "^many.dnn:.* the plan asks for 3 ranks" build many.dnn --plan auto --cluster two.cluster
printf 'net f(x: [N:2]) -> [N] { return x }\n' >net_only.dnn
wrong 1 "train'* block" build net_only.dnn --plan auto --cluster two.cluster
sed -i 's/1GiB/1KiB/' two.cluster
wrong 2 "none of [0-9]* plans fits" build "$mlp" --plan auto --cluster two.cluster
[ ! -e mlp.bundle ] || fail "a bundle without a plan"

# A stop during the search ends the command.
"$dnnc" build "$root/models/gpt3.dnn" --plan auto --cluster "$root/models/a100x1024.cluster" --ranks 64 -o gpt3.bundle 2>message &
pid=$!
sleep 1
kill -TERM $pid
wait $pid
[ $? = 143 ] && [ ! -e gpt3.bundle ] || { cat message; fail "a stop"; }
echo "plan auto: this machine, the environment, files; the same training; mistakes"

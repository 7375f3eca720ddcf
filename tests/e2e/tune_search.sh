#!/bin/bash
# `dnnc tune` without plans runs the best plans of a search, data parallelism among them, and
# writes the fastest with its cluster and profile, within its budget.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "no mpirun"
[ "$(nproc)" -ge 2 ] || skip "one core"
model=$root/benchmarks/systems/mlp.dnn
cat >check.py <<'END2'
import json, sys
plans = [json.loads(line) for line in open(sys.argv[1])]
names = [p["plan"] for p in plans]
assert len(set(names)) == len(names), names
ran = [p for p in plans if "measured_s" in p]
for p in ran:
    assert p["predicted_s"] > 0 and p["measured_s"] > 0, p
assert all("left_out" in p for p in plans if p not in ran), plans
print(len(plans), len(ran))
print(min(ran, key=lambda p: p["measured_s"])["plan"] if ran else "none")
print("\n".join(names))
END2

taskset -c 0,1 "$dnnc" tune $model --data "$root" --budget 40s -o here --json >out.json 2>log
code=$?
[ $code = 0 ] || { cat log; fail "tune ends with $code"; }
took=$SECONDS
[ $took -le 55 ] || fail "a budget of 40 s, and it took $took s"
for file in here.cluster here.profile here.kernels.csv here.plan; do
  [ -s $file ] || { cat log; fail "no $file"; }
done
python3 check.py out.json >checked || { cat out.json log; fail "the plans"; }
{ read -r n n_run; read -r fastest; } <checked
[ "$n" -ge 3 ] && [ "$n_run" -ge 2 ] || { cat out.json log; fail "$n_run of $n plans ran"; }
grep -qE '^(data 2|data parallelism)$' checked || { cat checked; fail "no data parallelism"; }
grep -qF "here.plan: $fastest, the fastest" log || { cat log out.json; fail "the fastest is $fastest"; }
# Its files price its plan, and the plan trains.
"$dnnc" simulate $model --plan here.plan --cluster here.cluster --profile here.profile --json >out.json || fail "simulate"
awk -v s="$(field launch_share out.json)" 'BEGIN { exit !(s > 0) }' || fail "no launch is in the profile"
taskset -c 0,1 "$dnnc" run $model --data "$root" --plan here.plan --steps 2 --no-save --quiet || fail "run here.plan"

# The word stands for them among other plans, and a plan that is too slow is left out by name.
printf 'mesh { ranks = 2 }\nplan {\n  microbatches = 32768\n}\n' >slow.plan
taskset -c 0,1 "$dnnc" tune $model B=65536 H1=512 H2=512 --data "$root" --budget 60s -o both --plan slow.plan --plan auto --effort 40 \
  --json >out.json 2>log || { cat log; fail "tune with a plan and auto"; }
python3 check.py out.json >checked || { cat out.json log; fail "a plan and auto"; }
[ "$(sed -n 3p checked)" = slow.plan ] && [ "$(sed -n '4,$p' checked | wc -l)" -ge 2 ] || { cat checked; fail "a plan and auto"; }
grep -q '"plan":"slow.plan","left_out":"it took longer than its share of the budget"' out.json ||
  { cat out.json; fail "a plan that is too slow"; }
[ -s both.plan ] && ! cmp -s both.plan slow.plan || fail "the fastest beside a slow one"

# ---- a job of one machine ----
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
timeout 150 taskset -c 0,1 mpirun -q --oversubscribe --bind-to none -n 2 "$dnnc" tune $model --data "$root" --budget 80s \
  -o job >out 2>log || { cat log; fail "tune under mpirun"; }
[ -s job.plan ] && [ "$(grep -c '^job.plan: .* the fastest' log)" = 1 ] || { cat out log; fail "a job"; }
echo "tune with a search: $n_run of $n plans ran; $fastest"

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

# A busy machine needs a larger budget for the first probe of two ranks and two
# plans; no budget may be passed.
for budget in 40 80 160; do
  begin=$SECONDS
  taskset -c 0,1 "$dnnc" tune $model --data "$root" --budget ${budget}s -o here --json >out.json 2>log
  code=$?
  [ $code = 0 ] || [ $budget -lt 160 ] || { cat log; fail "tune ends with $code"; }
  took=$((SECONDS - begin))
  [ $took -le $((budget + 15)) ] || fail "a budget of $budget s, and it took $took s"
  [ $code = 0 ] && grep -q "^measured 2 ranks, B in shards:" log && grep -q "^measured collectives" log &&
    [ "$(grep -c '"measured_s"' out.json)" -ge 2 ] && break
done
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

# ---- a job of one machine ----
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
job() { # BUDGET in seconds
  timeout $(($1 + 70)) taskset -c 0,1 mpirun -q --oversubscribe --bind-to none -n 2 "$dnnc" tune $model --data "$root" --budget "$1"s \
    -o job >out 2>log
}
job 80 || job 240 || { cat log; fail "tune under mpirun"; }
[ -s job.plan ] && [ "$(grep -c '^job.plan: .* the fastest' log)" = 1 ] || { cat out log; fail "a job"; }
echo "tune with a search: $n_run of $n plans ran; $fastest"

#!/bin/bash
# `dnnc tune --target cuda` on the mock GPU, whose kernels do nothing: probes on
# one and two GPUs, the links between them, and files that price a plan.
. "$(dirname "$0")/lib.sh"
. "$root/tests/mock/lib.sh"
mock_ready
export DNN_MOCK_KERNELS=idle DNN_MOCK_DEVICES=2 DNN_MOCK_NAME="NVIDIA H100 80GB HBM3"
model=$root/benchmarks/systems/mlp.dnn

# It ends after the first probe on two GPUs, so a busy machine has time for links: their
# ranks wait for their turns at each message.
"$dnnc" tune "$model" --target cuda:sm_90 --data "$root" --no-plans --budget 1h -o here >out 2>log </dev/null &
pid=$!
while kill -0 $pid 2>/dev/null && ! grep -q "measured 2 ranks, B in shards:" log; do sleep 0.2; done
kill -TERM $pid 2>/dev/null
wait $pid
grep -q NVRTC log && skip "no NVRTC"
for file in here.cluster here.profile here.kernels.csv here.links.csv; do
  [ -s $file ] || { cat log; fail "no $file"; }
done
grep -q "measured collectives between 2 ranks" log || { cat log; fail "links"; }
for ranks in "1 rank:" "2 ranks, B in shards:"; do
  grep -q "measured $ranks" log || { cat log; fail "$ranks"; }
done
awk -F, 'NR > 1 && !($NF > 0) { exit 1 } END { exit NR < 20 }' here.kernels.csv || { cat here.kernels.csv; fail "kernels"; }
awk -F, 'NR > 1 && !($5 > 0) { exit 1 } END { exit NR != 36 }' here.links.csv || { cat here.links.csv; fail "links"; }

printf 'mesh { ranks = 2 }\nplan {\n  shard B over ranks\n}\n' >data.plan
"$dnnc" simulate "$model" --plan data.plan --cluster here.cluster --profile here.profile --json >out.json 2>message ||
  { cat here.cluster message; fail "a price from its files"; }
awk -v s="$(field launch_share out.json)" 'BEGIN { exit !(s > 0.9) }' || { cat out.json; fail "its profile"; }

DNN_MOCK_DEVICES=0 "$dnnc" tune "$model" --target cuda:sm_90 --data "$root" --budget 10s -o none 2>message && fail "without a GPU"
grep -q "no GPU to measure" message || { cat message; fail "without a GPU"; }
echo "tune on the mock GPU: $(grep -c '^measured' log) probes"

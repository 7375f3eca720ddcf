#!/bin/bash
# Measures what ranks of a paced pipeline wait, against the simulator: four ranks, eight
# micro-batches, F = I = W, links of one machine.
#
#   benchmarks/idle_ranks.sh DNNC [SECONDS [STEPS [SCHEDULE ...]]]
#
# A rank sleeps SECONDS (0.5) for each of F, I and W, and what it sends is a few bytes,
# so a machine that is busy with other work adds little: a step takes 33 SECONDS.
# STEPS (3) are made of each schedule.  Prints the step as predicted and its median as
# measured, and what rank 0 waits, which works 24 F (32 under gpipe).  Fails where the mean error of the
# steps is above 6 % or one above 15 %, where 1f1b, interleaved(v = 2) or zbh1 is more than
# 1.5 F from 9, 4.5 and 3, and where these are in another order.  Under pipedream each batch is a step, of
# one micro-batch, so eight times as many steps are made, and rank 0 works 3 F; fails where it waits at all
# in the simulator, or more than 8 % of a step as measured.
set -eu
dnnc=$(readlink -f "$1") seconds=${2:-0.5} steps=${3:-3}
[ $# -gt 3 ] && shift 3 || set -- 1f1b 'interleaved(v = 2)' zbh1 'bfs(v = 2)' zbv fthenb gpipe pipedream
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1

cat >chain.dnn <<'MODEL'
dim B = 64, C = 32
layer linear(x: [B, C]) -> [B, C] {
  param w: [C, D:32] = normal(0.2)
  return dot(x, w, C)[D -> C]
}
net chain(x: [B, C]) -> [B, C] {
  param g: [C] = ones
  x = x * g
  repeat i in 8 { x = linear(x) }
  return x
}
data d { x: [B, C] = synthetic(); y: [B, C] = synthetic() }
train { loss = mse(chain(d.x), d.y); optimizer = sgd(lr = 0.01); steps = 2 }
MODEL
cat >free.cluster <<'CLUSTER'
cluster free {
  device = d
  level node { count = 4; link = 1000000GB/s; latency = 0us }
}
device d { base = cpu; cores = 1; memory = 1GiB }
CLUSTER

# say FILE COMMAND...: runs quietly, or says why not.
say() {
  local file=$1
  shift
  "$@" >"$file" 2>err </dev/null || { cat err >&2; exit 1; }
}

# One micro-batch of the eight, as a batch.
sed 's/B = 64/B = 8/' chain.dnn >single.dnn

# plan SCHEDULE: eight layers on 4 stages, or on 8 where a rank has two.
plan() {
  local n=2 s
  case $1 in *'v = 2'* | zbv | vhalf | vmin | dualpipev) n=1 ;; esac
  printf 'mesh { pipe = 4 }\nplan {\n  schedule = %s\n  microbatches = %d\n' "$1" "$microbatches"
  for s in $(seq $((n - 1)) $n 6); do echo "  cut after linear[$s]"; done
  echo '}'
}

for schedule; do
  model=chain.dnn microbatches=8 n=$steps profiled=$schedule
  # A run without a flush is not profiled: 1f1b with one micro-batch has its kernels.
  [ "$schedule" = pipedream ] && model=single.dnn microbatches=1 n=$((8 * steps)) profiled=1f1b
  plan "$profiled" >chain.plan
  say out "$dnnc" run $model --quick --quiet --no-save --plan chain.plan --profile measured.csv
  plan "$schedule" >chain.plan
  # Two layers are an F; all other launches take no time.
  awk -F, -v OFS=, -v ps="$(awk "BEGIN { printf \"%.0f\", $seconds * 5e11 }")" \
    'NR > 1 { $5 = $1 ~ /linear.*dot/ ? ps : 1 } { print }' measured.csv >chain.profile
  say simulated "$dnnc" simulate $model --plan chain.plan --cluster free.cluster --profile chain.profile --json
  say paced "$dnnc" run $model --quick --no-save --json --plan chain.plan --cluster free.cluster \
    --paced chain.profile steps="$n"
  predicted=$(grep -o '"step_s":[0-9.e+-]*' simulated | head -n 1 | cut -d: -f2)
  measured=$(sed -n 's/^{"step":.*"ms":\([0-9.]*\),.*/\1/p' paced | sort -n |
    awk '{ ms[NR] = $1 } END { print ms[int((NR + 1) / 2)] }')
  echo "$schedule|$predicted|$measured"
done | awk -F'|' -v f="$seconds" '
  BEGIN {
    wanted["1f1b"] = 9; wanted["interleaved(v = 2)"] = 4.5; wanted["zbh1"] = 3
    printf "%-20s %12s %12s %8s  %s\n", "schedule", "predicted", "measured", "error", "rank 0 waits"
  }
  function distance(a, b) { return a < b ? b - a : a - b }
  {
    error = $2 * 1000 / $3 - 1
    work = $1 == "gpipe" ? 32 : $1 == "pipedream" ? 3 : 24
    if ($1 == "pipedream" && $2 > work * f * 1.001) bad = bad "\npipedream: idle time in the simulator"
    if ($1 == "pipedream" && $3 > work * f * 1080) bad = bad "\npipedream: more than 8 % of a step"
    waits[$1] = $3 / 1000 / f - work
    printf "%-20s %9.1f ms %9.1f ms %+6.1f %%  %.2f F, %.2f F predicted\n", $1, $2 * 1000, $3, error * 100, waits[$1], $2 / f - work
    sum += distance(error, 0)
    if (distance(error, 0) > 0.15) bad = bad "\n" $1 ": more than 15 %"
    if ($1 in wanted && distance(waits[$1], wanted[$1]) > 1.5) bad = bad "\n" $1 ": not within 1.5 F of " wanted[$1]
    n++
  }
  END {
    printf "mean error of %d steps: %.1f %%\n", n, sum / n * 100
    if (sum / n > 0.06) bad = bad "\nmean above 6 %"
    a = waits["1f1b"]; b = waits["interleaved(v = 2)"]; c = waits["zbh1"]
    if (a != "" && b != "" && c != "" && !(a > b && b > c)) bad = bad "\nanother order"
    if (bad) print "FAIL:" bad
    exit bad != ""
  }'

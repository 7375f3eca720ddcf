#!/bin/bash
# Measures collectives, and training steps against PyTorch, between ranks that
# each have a network namespace; the links of all of them to a bridge carry a
# given rate in each direction.  Needs root, ip, tc and Open MPI; steps and async
# also need a python with torch and numpy, $DNNC_TORCH_PYTHON (or python3).
#   tools/network.sh collectives [MBIT ...]           all kinds, 2 and 4 ranks
#   tools/network.sh steps [MBIT [CASE ...]]          see benchmarks/compare_ranks.py
#   tools/network.sh paced FOLDER [MBIT [MODEL ...]]  see benchmarks/reality.py
#   tools/network.sh stages FOLDER [MBIT]             see benchmarks/reality.py
#   tools/network.sh staged FOLDER FILE [MBIT [MODEL ...]]    see benchmarks/staged_reality.py
#   tools/network.sh kinds FOLDER MBIT [MODEL ...]    see benchmarks/stage_kinds.py
#   tools/network.sh found FOLDER MBIT MODEL          see benchmarks/bench_tune.py
#   tools/network.sh islands [MBIT [CASE ...]]        see benchmarks/islands.py
#   tools/network.sh async [MBIT ...]                 see benchmarks/async_plans.py
#   tools/network.sh target [MBIT [KIND ...]]         see benchmarks/async_training.py
# $DNNC is the compiler (build/dnnc), $ROUNDS how often both sides run (5).
# $JOB_SECONDS is what a rank of a measured job has (50, below 100 Mbit/s 110).
# $DNNC_NETWORK begins the names of the namespaces.
set -eu
cd "$(dirname "$0")/.."
export DNNC_NETWORK=${DNNC_NETWORK:-dnn$$x}
export DNNC_TORCH_PYTHON=${DNNC_TORCH_PYTHON:-python3}
dnnc=$(readlink -f "${DNNC:-build/dnnc}") rounds=${ROUNDS:-5} ranks=4 burst=256kb
# A burst passes at any rate, and short messages are nothing else.  It must hold
# a packet, which has 64 kB where the kernel joins segments.  Paced runs compare a
# link with its model, so they send jumbo frames one by one.
frames=
case ${1:-} in
found | kinds | stages | paced | staged)
  burst=16kb frames="mtu 9000 gso_max_size 9000 gso_max_segs 1"
  ;;
esac
case ${1:-} in paced | staged) ranks=8 ;; esac
work=$(mktemp -d)
made=0

skip() {
  echo "skipped: $*"
  exit 77
}
clean_up() {
  rm -rf "$work"
  [ $made = 0 ] && return
  for name in $(seq 0 $((ranks - 1))) bridge; do
    for pid in $(ip netns pids "$DNNC_NETWORK$name" 2>/dev/null); do
      kill -KILL "$pid" 2>/dev/null || true
    done
    ip netns del "$DNNC_NETWORK$name" 2>/dev/null || true
  done
}
trap clean_up EXIT

for needed in ip tc mpirun unshare; do
  command -v $needed >/dev/null || skip "no $needed"
done
[ -x "$dnnc" ] || skip "no $dnnc"
if ! ip netns add "${DNNC_NETWORK}bridge" 2>/dev/null; then
  skip "network namespaces are not allowed here"
fi
made=1

bridge=${DNNC_NETWORK}bridge
ip -n "$bridge" link add bridge0 type bridge || skip "no bridges here"
ip -n "$bridge" link set bridge0 up
# Ranks 2 and 3 have a bridge of their own, which one link joins to that of the others.
split=$ranks
if [ "${1:-}" = islands ]; then
  split=2
  ip -n "$bridge" link add bridge1 type bridge
  ip -n "$bridge" link set bridge1 up
  ip -n "$bridge" link add border0 type veth peer name border1
  for i in 0 1; do
    ip -n "$bridge" link set "border$i" master "bridge$i" up
  done
fi
for i in $(seq 0 $((ranks - 1))); do
  ip netns add "$DNNC_NETWORK$i"
  ip -n "$bridge" link add "port$i" type veth peer name eth0 \
    netns "$DNNC_NETWORK$i"
  ip -n "$bridge" link set "port$i" master "bridge$((i / split))" $frames up ||
    skip "no links with '$frames' here"
  ip -n "$DNNC_NETWORK$i" addr add "10.88.0.$((i + 1))/24" dev eth0
  ip -n "$DNNC_NETWORK$i" link set eth0 $frames up
  ip -n "$DNNC_NETWORK$i" link set lo up
done

# shape MBIT
shape() {
  for i in $(seq 0 $((ranks - 1))); do
    for at in "$DNNC_NETWORK$i eth0" "$bridge port$i"; do
      tc -n "${at% *}" qdisc replace dev "${at#* }" root tbf rate "$1mbit" \
        burst $burst latency 50ms || skip "no tbf here"
    done
  done
}

# mpirun starts the ranks of another host with `agent HOST COMMAND`.
cat >"$work/agent" <<END
#!/bin/bash
host=\$1; shift
name=$DNNC_NETWORK\$((\${host##*.} - 1))
exec ip netns exec \$name unshare --uts sh -c "hostname \$name; \$*"
END
chmod +x "$work/agent"
mpirun="mpirun -q --allow-run-as-root --bind-to none"
mpirun="$mpirun --mca plm_rsh_agent $work/agent --mca plm_rsh_no_tree_spawn 1"
# Linux shares processors out between sessions.  If each host began a session of
# its own, all threads of a rank could wait for those of another one, for seconds.
mpirun="$mpirun --leave-session-attached"
mpirun="$mpirun --mca btl self,tcp --mca btl_tcp_if_include 10.88.0.0/24"
mpirun="$mpirun --mca oob_tcp_if_include 10.88.0.0/24"
export DNNC_NETWORK_MPIRUN=$mpirun
export OMP_NUM_THREADS=1

# on_ranks N COMMAND
on_ranks() {
  local n=$1 hosts=10.88.0.1 i
  shift
  for i in $(seq 2 "$n"); do hosts=$hosts,10.88.0.$i; done
  ip netns exec "${DNNC_NETWORK}0" unshare --uts sh -c \
    'hostname "$0"; exec "$@"' "${DNNC_NETWORK}0" \
    $mpirun -n "$n" -host "$hosts" "$@"
}

collectives() {
  ${CC:-cc} -std=gnu11 -O2 -D_GNU_SOURCE -I. -o "$work/collectives" \
    benchmarks/collectives.c "$(dirname "$dnnc")/libdnnrank.a" \
    -fopenmp -lm -ldl -lpthread
  for rate in "${@:-1000}"; do
    shape "$rate"
    for n in 2 4; do
      for kib in 1 64; do
        on_ranks $n "$work/collectives" all-reduce $((kib << 10)) 101 "$rate"
      done
      on_ranks $n "$work/collectives" all $((rate * 80000)) "$rounds" "$rate"
    done
  done
  for n in 2 4; do
    echo "shared memory"
    for bytes in 1024 65536 67108864; do
      mpirun -q --allow-run-as-root --oversubscribe --bind-to none \
        --mca btl self,vader -n $n "$work/collectives" all $bytes 51
    done
  done
}

need_torch() {
  "$DNNC_TORCH_PYTHON" -c 'import torch, numpy' 2>/dev/null ||
    skip "'$DNNC_TORCH_PYTHON' has no torch and numpy (DNNC_TORCH_PYTHON)"
}

steps() {
  need_torch
  local rate=${1:-1000}
  shift || true
  shape "$rate"
  python3 benchmarks/compare_ranks.py "$dnnc" "$rate" "$rounds" "$@"
}

measure_job() { # FOLDER MBIT RANKS
  local seconds=${JOB_SECONDS:-$(($2 < 100 ? 110 : 50))}
  [ -s "$1/job$2.$3.cluster" ] ||
    on_ranks "$3" "$dnnc" tune benchmarks/systems/mlp.dnn --no-plans \
      --budget $((seconds * $3))s -o "$1/job$2.$3"
}

# The links are measured first, in jobs of as many ranks as the plans have: all
# share the cores of one machine.
paced() {
  local folder=$1 rate=${2:-200}
  shift
  shift || true
  shape "$rate"
  local n
  for n in 2 4 $([ "$rate" -gt 200 ] || echo 8); do
    measure_job "$folder" "$rate" "$n"
  done
  python3 benchmarks/reality.py paced "$dnnc" "$folder" "$rate" "$@"
}

# Pipelines; kernels and links are those of formulas.
stages() {
  shape "${2:-200}"
  python3 benchmarks/reality.py stages "$dnnc" "$1" "${2:-200}"
}

# Pipelines; kernels are those of curves, links those of formulas.
staged() {
  local folder=$1 predictions=$2 rate=${3:-200}
  shift $(($# < 3 ? $# : 3))
  shape "$rate"
  python3 benchmarks/staged_reality.py staged "$dnnc" "$folder" \
    "$predictions" "$rate" "$@"
}

# Stages or none, four ranks.
kinds() {
  shape "$2"
  python3 benchmarks/stage_kinds.py "$dnnc" "$@"
}

# The plan that a search finds for links of this rate, and the plans of reality/.
found() {
  local folder=$1 rate=$2 model=$3
  shape "$rate"
  measure_job "$folder" "$rate" 4
  python3 benchmarks/bench_tune.py paced-row "$dnnc" "$folder" "$rate" "$model"
}

# Two islands; in them links are as fast as they come.
islands() {
  local rate=${1:-500} i
  shift || true
  for i in 0 1; do
    tc -n "$bridge" qdisc replace dev "border$i" root handle 1: \
      tbf rate "${rate}mbit" burst 256kb latency 50ms || skip "no tbf here"
    tc -n "$bridge" qdisc replace dev "border$i" parent 1: \
      netem delay 20ms limit 10000 2>"$work/netem" ||
      echo "skipped: the latency of 20 ms, because this kernel has no netem"
  done
  python3 benchmarks/islands.py "$dnnc" border0 "$@"
}

# Stages that keep versions of their parameters, data parallelism, and PyTorch.
async() {
  need_torch
  local rate
  for rate in ${@:-200 1000}; do
    shape "$rate"
    python3 benchmarks/async_plans.py "$dnnc" "$rate" "$rounds"
  done
}

# Plans that change what is computed, by the seconds that they take to a loss.
target() {
  local rate=${1:-200}
  shift || true
  shape "$rate"
  python3 benchmarks/async_training.py "$dnnc" "$rate" "$@"
}

command=${1:-}
shift || true
case $command in
collectives | steps | paced | stages | staged | kinds | found | islands | async | target)
  $command "$@"
  ;;
*) sed -n '2,/^set/p' "$0" | sed '$d' && exit 1 ;;
esac

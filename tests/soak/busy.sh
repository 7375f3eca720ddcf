#!/bin/bash
# Trains on six ranks beside four busy loops: a rank that gets no processor must
# not look lost.
#   busy.sh DNNC [SECONDS]     default 60 s; from then on also with the lowest
#                              priority, with which it may not come to a step
set -u
dnnc=$(realpath "$1") seconds=${2:-60}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
loops=()
trap 'kill "${loops[@]}" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
echo 'mesh { data = 3; tensor = 2 } plan { shard B over data; shard H, F over tensor }' >six.plan
"$dnnc" build "$root/benchmarks/systems/gpt.dnn" --plan six.plan -o six --quiet B=12 \
  steps=1000000 || exit 1
for _ in 1 2 3 4; do
  (while :; do :; done) &
  loops+=($!)
done
priorities=("")
[ "$seconds" -lt 60 ] || priorities+=("chrt --idle 0")
for priority in "${priorities[@]}"; do
  # SIGTERM ends the run after a step; timeout says 124 then.
  # shellcheck disable=SC2086
  $priority timeout -s TERM "$seconds" six/run --no-save --log-every 1 >out 2>err
  code=$?
  echo "$(grep -c '^step' out) lines in $seconds s, priority '${priority:-normal}': exit $code"
  [ -n "$priority" ] || grep -q '^step' out || { cat err; echo "FAIL: no step"; exit 1; }
  if [ $code != 124 ] || grep -qE 'lost rank|no contact|no progress' err; then
    cat err
    echo "FAIL: a false alarm"
    exit 1
  fi
done

#!/bin/bash
# npy_memory.sh DNNC [GIB [STEPS]] -- trains an epoch, or STEPS steps, on an npy
# file of GIB GiB (4), in random order, and fails where the rank holds more than 300 MB of memory of its own beyond the
# arena.  What it reads of the file lies in the page cache, which the kernel
# takes back: RssAnon counts what it cannot.
set -eu
dnnc=$(readlink -f "$1") gib=${2:-4}
steps=${3:-$((gib << 10))}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
records=$((gib << 20))
{ printf '\223NUMPY\1\0\166\0%-117s\n' \
    "{'descr': '|u1', 'fortran_order': False, 'shape': ($records, 1024), }"
  head -c $((gib << 30)) /dev/urandom; } >big.npy
cat >m.dnn <<MODEL
dim B = 1024, P = 1024, H = 16
net f(x: [B, P]) -> [B, P] {
  param w: [P, H] = normal(0.02)
  param v: [H, P] = normal(0.02)
  return dot(relu(dot(x, w, P)), v, H)
}
data d { x: [B, P] = npy("big.npy") / 255 }
train {
  loss      = mse(f(d.x), d.x)
  optimizer = sgd(lr = 0.1)
  steps     = ${steps}
}
MODEL
"$dnnc" build m.dnn --quiet -o m.bundle
begin=$(date +%s)
./m.bundle/rank-0000 --no-save --json >out &
pid=$!
most=0 file=0
while kill -0 $pid 2>/dev/null; do
  now=$(awk '/^RssAnon/ { print $2 }' /proc/$pid/status 2>/dev/null || true)
  [ "${now:-0}" -le $most ] || most=$now
  now=$(awk '/^RssFile/ { print $2 }' /proc/$pid/status 2>/dev/null || true)
  [ "${now:-0}" -le $file ] || file=$now
  sleep 0.2
done
wait $pid
arena=$(($(tail -n 1 out | sed 's/.*"arena_bytes":\[\([0-9]*\).*/\1/') >> 10))
echo "$gib GiB, $steps steps in $(($(date +%s) - begin)) s: RssAnon $((most >> 10)) MiB, arena $((arena >> 10)) MiB, RssFile $((file >> 10)) MiB"
[ $((most - arena)) -lt $((300 * 1000 * 1000 >> 10)) ] || {
  echo "FAIL: more than 300 MB beyond the arena"
  exit 1
}

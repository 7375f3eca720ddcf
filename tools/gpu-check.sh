#!/bin/bash
# gpu-check.sh [REPORT] -- on a machine with a GPU: builds dnnc, trains the small
# models for a few steps on the CPU and on the GPU from the same seed, compares
# the losses, runs one of them under compute-sanitizer where that is installed,
# and writes what it saw to REPORT (gpu-report.txt).  Exit 1 if anything differs;
# without a GPU it says "skipped" and exits 77.
set -u
cd "$(dirname "$0")/.."
report=${1:-gpu-report.txt}
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
  echo "skipped: no GPU (nvidia-smi finds none)"
  exit 77
fi
tools/setup.sh --cuda || exit 3
cmake -S . -B build -G Ninja >/dev/null && ninja -C build dnnc >/dev/null || exit 3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
train() { # model target: JSON lines in $work/model-target.json
  build/dnnc run "models/$1.dnn" --target "$2" --steps 20 --no-save --json \
    --data . eval_batches=1 >"$work/$1-$2.json" 2>"$work/$1-$2.err"
}
losses() { grep '"step":' "$1" | grep -o '"loss":[^,}]*' | cut -d: -f2; }
{
  echo "dnnc $(git rev-parse --short HEAD)"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  for model in mlp lenet charmoe chargpt; do
    for target in cpu cuda; do
      if ! train $model $target; then
        echo "$model $target: FAILED"
        tail -n 5 "$work/$model-$target.err"
        bad=1
      fi
    done
    worst=$(paste -d' ' <(losses "$work/$model-cpu.json") \
      <(losses "$work/$model-cuda.json") | awk 'NF == 2 {
        d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > w) w = d; n++ }
      END { printf "%d %.3g", n, w }')
    ms=$(grep -o '"ms":[^,}]*' "$work/$model-cuda.json" | cut -d: -f2 |
      sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    echo "$model: ${worst% *} steps, worst relative difference of the loss" \
      "${worst#* }, median step $ms ms"
    awk -v n="${worst% *}" -v w="${worst#* }" 'BEGIN { exit !(n >= 20 && w <= 1e-3) }' ||
      { echo "$model: DIFFERS"; bad=1; }
  done
  if command -v compute-sanitizer >/dev/null; then
    build/dnnc build models/mlp.dnn --target cuda -o "$work/m.bundle" --quiet
    if compute-sanitizer --error-exitcode 9 "$work/m.bundle/rank-0000" --data . \
      --steps 2 --no-save --quiet >"$work/sanitizer" 2>&1; then
      echo "compute-sanitizer: clean"
    else
      echo "compute-sanitizer: FAILED"
      tail -n 20 "$work/sanitizer"
      bad=1
    fi
  else
    echo "compute-sanitizer: skipped, not installed"
  fi
  echo "bad=$bad" >"$work/bad"
} >"$work/report"
. "$work/bad"
cat "$work/report"
mv "$work/report" "$report"
exit $bad

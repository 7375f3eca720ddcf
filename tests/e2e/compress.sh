#!/bin/bash
# Gradients that ranks send in fewer bits: thirty steps agree with a reference
# that compresses alike (compress.c), under data parallelism, micro-batches,
# ZeRO and stages.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
reference="$work/compress"
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -o "$reference" \
  "$root/tests/e2e/compress.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -fopenmp -lm -ldl -lpthread || fail "cannot compile the helper"
cp "$root/tests/e2e/compress.dnn" .
"$reference" make || fail "no data made"

# check RANKS KIND LINE...: trains under a plan with these lines.  A reference
# that does not compress must see a difference.
check() {
  local ranks=$1 kind=$2 off ties plain
  shift 2
  { echo "plan {"; printf '  %s\n' "$@"; echo "}"; } >c.plan
  grep -q stage c.plan || sed -i "1i mesh { data = $ranks }" c.plan
  rm -rf out.ckpt
  "$dnnc" run compress.dnn --quick --plan c.plan --load start.ckpt save=out.ckpt \
    save_every=1 keep=30 >out 2>err </dev/null || { cat c.plan err; fail "does not train"; }
  read -r off ties <<<"$("$reference" compare out.ckpt "$ranks" "$kind")"
  read -r plain _ <<<"$("$reference" compare out.ckpt "$ranks" none)"
  echo "$ranks ranks, $*: off by $off, $ties ties ($plain from a reference without compression)"
  awk "BEGIN { exit !($off < 1e-6 && $ties < 200 * $ranks && ($plain > 1e-4 || \"$kind\" == \"none\")) }" ||
    { cat c.plan; fail "$kind on $ranks ranks"; }
}

check 2 none "shard B over data"
for ranks in 2 4; do
  for kind in bf16 f16; do
    check $ranks $kind "shard B over data" "compress = $kind"
  done
done
check 2 bf16 "shard B over data" "compress = bf16" "zero = 1"
check 2 f16 "shard B over data" "compress = f16" "microbatches = 2" "bucket = 1KB"
check 2 bf16 "schedule = 1f1b" "shard B over data" "compress = bf16" \
  "stage 0: hidden on 0..1 as (data = 2)" "stage 1: out on 2..3 as (data = 2)"

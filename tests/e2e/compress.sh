#!/bin/bash
# Gradients that ranks send in fewer bits: thirty steps agree with a reference
# that compresses alike (compress.c), under data parallelism, micro-batches,
# ZeRO and stages; runs with low rank go on under other ranks.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
reference="$work/compress"
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -o "$reference" \
  "$root/tests/e2e/compress.c" "$(dirname "$dnnc")/libdnnrank.a" \
  -fopenmp -lm -ldl -lpthread || fail "cannot compile the helper"
cp "$root/tests/e2e/compress.dnn" .
"$reference" make || fail "no data made"

# train RANKS LINE...: 30 steps under a plan with these lines.
train() {
  local ranks=$1
  shift
  { echo "plan {"; printf '  %s\n' "$@"; echo "}"; } >c.plan
  grep -q stage c.plan || sed -i "1i mesh { data = $ranks }" c.plan
  rm -rf out.ckpt
  "$dnnc" run compress.dnn --quick --plan c.plan --load start.ckpt save=out.ckpt \
    save_every=1 keep=30 >out 2>err </dev/null || { cat c.plan err; fail "does not train"; }
}

# check RANKS KIND LINE...: trains under a plan with these lines.  A reference
# that does not compress must see a difference.
check() {
  local ranks=$1 kind=$2 off ties plain
  shift 2
  train "$ranks" "$@"
  read -r off ties <<<"$("$reference" compare out.ckpt "$ranks" "$kind")"
  read -r plain _ <<<"$("$reference" compare out.ckpt "$ranks" none)"
  echo "$ranks ranks, $*: off by $off, $ties ties ($plain from a reference without compression)"
  awk "BEGIN { exit !($off < 1e-6 && $ties < 200 * $ranks && ($plain > 1e-4 || \"$kind\" == \"none\")) }" ||
    { cat c.plan; fail "$kind on $ranks ranks"; }
}

# A rank by which no gradient becomes smaller is worth a word.
warned() { # RANK
  printf 'mesh { data = 2 }\nplan { compress = power(rank = %s) }\n' "$1" >c.plan
  "$dnnc" simulate compress.dnn --plan c.plan --cluster "$root/models/laptop.cluster" 2>&1 >/dev/null |
    grep -c "c.plan:2:8: warning: 'compress = power' changes nothing"
}
[ "$(warned 1000)" = 1 ] && [ "$(warned 2)" = 0 ] || fail "a rank that compresses nothing"

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

# power RANKS RANK COUNT LINE...: COUNT of two matrices are compressed.
power() {
  local ranks=$1 rank=$2 count=$3 off n
  shift 3
  train "$ranks" "compress = power(rank = $rank)" "$@"
  read -r off n <<<"$("$reference" power out.ckpt 2 "$rank")"
  echo "$ranks ranks, rank $rank, $*: off by $off in $n gradients"
  awk "BEGIN { exit !($off < 1e-5 && $n == 29 * $count) }" ||
    { cat c.plan; fail "power($rank) on $ranks ranks"; }
}

for ranks in 1 2 4; do
  power $ranks 2 2 "shard B over data"
  power $ranks 4 1 "shard B over data"
done
power 2 2 2 "shard B over data" "zero = 1"
power 4 2 2 "shard B over data" "zero = 3" "microbatches = 2" "bucket = 1KB"
power 4 2 2 "schedule = 1f1b" "shard B over data" \
  "stage 0: hidden on 0..1 as (data = 2)" "stage 1: out on 2..3 as (data = 2)"

# Ranks add up the two factors of each matrix, and no matrix.
printf 'mesh { data = 2 } plan { shard B over data; compress = power(rank = 2) }\n' >sums.plan
"$dnnc" ir compress.dnn --plan sums.plan --after partition >sums.ir || fail "no graph"
factors=$(grep ' = all_reduce ' sums.ir | grep -c 'columns~')
matrices=$(grep ' = all_reduce ' sums.ir | grep -v 'columns~' | grep -c ': f32\[[A-Z]*:[0-9]*,')
echo "sums over ranks: $factors factors, $matrices matrices"
[ "$factors $matrices" = "4 0" ] || { grep all_reduce sums.ir; fail "matrices are added up"; }

# The sums of the last layer are under way while the first one has its backward
# pass, as without compression.
for kind in none bf16 f16 'power(rank = 2)'; do
  printf 'mesh { data = 2 } plan { shard B over data; bucket = 64B; compress = %s }\n' "$kind" >early.plan
  "$dnnc" ir compress.dnn --plan early.plan --instructions >early.txt || fail "no list"
  awk '/ start .*all_reduce.*"(grad|compress)[.]/ { if (!first) first = NR }
       /wait.*all_reduce/ { if (!wait) wait = NR }
       /run .* "grad.hidden.dot"/ { backward = NR }
       END { print "first sum at " first ", end of the backward pass at " backward ", first wait at " wait
             exit !(first && first < backward && backward < wait) }' early.txt ||
    { cat early.txt; fail "no sum beside the backward pass with compress = $kind"; }
done

# A checkpoint has the sum of the errors, so other ranks go on from it.
losses() { # run arguments; the last loss is there twice
  "$dnnc" run compress.dnn --quick --json "$@" save=out.ckpt save_every=0 <&- 2>err |
    grep -o '"loss":[^,}]*' | cut -d: -f2
}
train 2 "compress = power(rank = 2)" "shard B over data"
cp c.plan two.plan
mv out.ckpt/step-00000015 step-00000015
sed 's/data = 2/data = 4/' two.plan >four.plan
sed '/^mesh/d; s/^  shard.*//' two.plan >one.plan
printf 'mesh { pipe = 2; data = 2 }\nplan {\n  compress = power(rank = 2)\n  cut after hidden\n}\n' >stages.plan
losses --plan two.plan --load start.ckpt | tail -n 16 >full.losses
[ "$(wc -l <full.losses)" = 16 ] || { cat err; fail "no losses"; }
for ranks in two one four stages; do
  rm -rf out.ckpt && mkdir out.ckpt && cp -r step-00000015 out.ckpt
  losses --plan $ranks.plan --resume >resumed.losses || { cat err; fail "$ranks does not resume"; }
  paste full.losses resumed.losses | awk -v n="$ranks" '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most) most = d }
    END { print "resumed on " n ": losses differ by " most + 0; exit !(NR == 16 && most < 1e-5) }' ||
    fail "resumed on ranks: $ranks"
done

#!/bin/bash
# Compile time grows with the kinds of blocks, not with layers: GPT-2 with 12
# and with 96 layers, everything compiled anew.  The time for the graphs of dnnc
# itself grows in proportion: 384 layers against 96, kernels from the cache.
# Measured in CPU time of dnnc and its compilers, so that a busy machine matters
# little.
. "$(dirname "$0")/lib.sh"
cpu_seconds() { # layers option...
  local TIMEFORMAT='%U %S' layers=$1
  shift
  { time "$dnnc" build "$root/models/gpt2.dnn" precision.compute=f32 \
    L="$layers" "$@" -o "gpt2-$layers" >log 2>&1; } 2>&1 |
    awk '{ print $1 + $2 }'
}
# mean TIMES command...: of the first of the numbers that it prints.
mean() {
  local times=$1
  shift
  for _ in $(seq "$times"); do "$@"; done |
    awk '{ s += $1 } END { print s / NR }'
}
# at_most BOUND WHAT TIMES COMMAND FEW MANY option...: COMMAND takes for MANY at
# most BOUND times what it takes for FEW, in three of up to five rounds: their
# median.  A machine that changes its speed spoils a round.  The one for FEW runs
# TIMES times in each, so that both see as much of the machine.
at_most() {
  local bound=$1 what=$2 times=$3 command=$4 low=$5 high=$6 within=0 above=0
  shift 6
  while [ $within -lt 3 ] && [ $above -lt 3 ]; do
    few=$(mean "$times" "$command" "$low" "$@")
    many=$("$command" "$high" "$@")
    echo "$what: $low: $few s, $high: $many s"
    if awk -v m="$bound" -v a="$few" -v b="$many" \
      'BEGIN { exit !(a > 0 && b > 0 && b < m * a) }'; then
      within=$((within + 1))
    else
      above=$((above + 1))
    fi
  done
  [ $within = 3 ] ||
    fail "$what: in three of $((within + above)) rounds $high takes more than $bound times what $low takes"
}
at_most 1.4 "layers of gpt2" 1 cpu_seconds 12 96 --no-cache
[ -x gpt2-96/rank-0000 ] || { cat log; fail "gpt2 with 96 layers"; }
cpu_seconds 96 >/dev/null # fills the cache
at_most 5 "layers of gpt2 without kernels" 4 cpu_seconds 96 384
[ -x gpt2-384/rank-0000 ] || { cat log; fail "gpt2 with 384 layers"; }

# A plan with a line for each parameter, value and gradient of each layer costs
# in proportion too: GPT-3 with 24 and with 96 layers, 7,300 lines.
full_plan() { # layers: writes full-LAYERS.plan
  "$dnnc" ir "$root/models/gpt3.dnn" L="$1" \
    --plan "$root/benchmarks/plans/gpt3.plan" --stop-after=constrain |
    awk '
      BEGIN {
        print "mesh {\n  data = 128\n  tensor = 8\n}\nplan {"
        print "  shard H, F over tensor\n  shard B over data"
      }
      function line(path, places) {
        print (places ? "  shard \"" : "  replicate \"") path "\"" \
          (places ? ": " places : "")
      }
      /^  %/ {
        path = $NF
        gsub(/"/, "", path)
        if (path !~ /^[a-z]/ || path in seen) next
        seen[path] = 1
        match($0, / : [a-z0-9]*\[[^]]*\]/)
        n = split(substr($0, RSTART, RLENGTH), dims, /[[,] */)
        split("", over)
        for (i = 2; i <= n; i++) over[substr(dims[i], 1, 1)] = 1
        wide = "H" in over ? "H over tensor" : "F" in over ? "F over tensor" : ""
        batch = "B" in over ? "B over data" : ""
        line(path, batch (batch && wide ? ", " : "") wide)
        if (/ param /) line("grad." path, wide)
        if (/ param /) line("optimizer." path, wide)
      }
      END { print "}" }' >"full-$1.plan"
}
plan_seconds() { # layers
  local TIMEFORMAT='%U %S'
  { time "$dnnc" ir "$root/models/gpt3.dnn" L="$1" --plan "full-$1.plan" \
    --stop-after=list_schedule >log 2>&1; } 2>&1 | awk '{ print $1 + $2 }'
}
full_plan 24
full_plan 96
[ "$(wc -l <full-96.plan)" -gt 7000 ] || fail "no full plan of 96 layers"
at_most 5 "layers of GPT-3 with a full plan" 4 plan_seconds 24 96
grep -q 'all_reduce' log || { tail log; fail "GPT-3 with its full plan"; }

slow=$(slowness)

# The passes of GPT-3 on 1,024 ranks take half a second, whether a line of the
# plan stands for all layers or for one value.  They run in one thread, so on a
# machine that does nothing else this is wall-clock time.
pass_seconds() { # plan
  for _ in 1 2 3 4 5; do
    "$dnnc" ir "$root/models/gpt3.dnn" L=96 --plan "$1" --time-passes \
      --stop-after=list_schedule 2>&1 >log | awk '
        / ms / { s += $2 }
        END { print (NR && s ? s / 1000 : "none") }'
  done | sort -n | head -n 1
}
for plan in "$root/benchmarks/plans/gpt3.plan" full-96.plan; do
  seconds=$(pass_seconds "$plan")
  grep -q 'all_reduce' log || { tail log; fail "GPT-3 with $plan"; }
  echo "passes of GPT-3, plan of $(wc -l <"$plan") lines: $seconds s, a machine $slow times as slow as usual"
  awk -v s="$seconds" -v slow="$slow" 'BEGIN { exit !(s > 0 && s < slow / 2) }' ||
    fail "the passes of GPT-3 take $seconds s with $plan, on a machine $slow times as slow as usual"
done

# The price of GPT-3 on 1,024 ranks is known within a second, of which the
# front end and the passes take half at most; it takes no longer on 8,192 ranks,
# and for four times the layers four times the instructions at most.  Caches serve
# 24 layers better than 96, so the time may be 5 times (3.5 to 4.7 in 18 rounds).
sed 's/shard H, F/zero = 3\n  &/' "$root/benchmarks/plans/gpt3.plan" >zero3.plan
sed 's/data   = 128/data   = 1024/' zero3.plan >wide.plan
sed 's/count = 128;/count = 1024;/' "$root/models/a100x1024.cluster" >wide.cluster
price_seconds() { # layers plan: adds those of front end and passes to a file
  "$dnnc" simulate "$root/models/gpt3.dnn" L="$1" B=8192 --plan "$2" \
    --cluster wide.cluster --time-passes 2>&1 >log |
    awk -v passes="passes-$1-$2" '
      / ms/ { all += $2; if ($1 == "buffer_assign" || $1 == "price") own += $2 }
      END { print all / 1000; print (all - own) / 1000, all / 1000 >> passes }'
}
price_of_plan() { price_seconds 96 "$1"; }
# Stages of GPT-3: tensor 8, eight groups of ranks, data 16 and 64, 96 micro-batches of
# 1f1b on 1,024 and 4,096 ranks, and of two stages a rank on 1,024.  Front end, passes, lists with their proof, arenas and price
# take 3 s, the lists and the proof half a second of that.
staged() { # data schedule blocks
  printf 'mesh { pipe = 8; data = %d; tensor = 8 }\nplan {\n  schedule = %s\n  microbatches = 96\n  shard H, F over tensor\n' "$1" "$2"
  for block in $(seq $(($3 - 1)) "$3" $((95 - $3))); do echo "  cut after block[$block]"; done
  echo '}'
}
sed 's/count = 128;/count = 512;/' "$root/models/a100x1024.cluster" >512.cluster
for case in '16:1f1b:12' '64:1f1b:12' '16:interleaved(v = 2):6'; do
  IFS=: read -r data schedule blocks <<<"$case"
  staged "$data" "$schedule" "$blocks" >staged.plan
  "$dnnc" simulate "$root/models/gpt3.dnn" L=96 B=$((96 * data)) --plan staged.plan \
    --cluster 512.cluster --time-passes 2>times >log || { cat times; fail "no price of stages of GPT-3"; }
  awk -v ranks=$((64 * data)) -v schedule="$schedule" -v slow="$slow" '
    $1 == "front_end" || $1 == "timeline" || $1 == "buffer_assign" || $1 == "price" { part[$1] += $2; own = 1 }
    / ms/ { all += $2; if (!own) part["passes"] += $2; own = 0 }
    END {
      printf "stages of GPT-3 on %d ranks, %s: %.0f ms of CPU time", ranks, schedule, all
      n = split("front_end passes timeline buffer_assign price", names, " ")
      for (i = 1; i <= n; i++) printf ", %s %.0f", names[i], part[names[i]]
      printf "\n"
      exit !(part["timeline"] > 0 && part["timeline"] < 500 * slow && all < 3000 * slow) }' times ||
    fail "stages of GPT-3 take longer"
done
at_most 5 "layers of the price of GPT-3" 4 price_seconds 24 96 zero3.plan
price_instructions() { # layers, in millions
  valgrind --tool=callgrind --callgrind-out-file=/dev/null \
    "$dnnc" simulate "$root/models/gpt3.dnn" L="$1" B=8192 --plan zero3.plan \
    --cluster wide.cluster 2>&1 >"log-$1" |
    awk '/refs:/ { gsub(/,/, ""); print int($NF / 1e6) }'
}
if command -v valgrind >/dev/null; then
  price_instructions 24 >few & # a neighbour changes no count
  many=$(price_instructions 96)
  wait $!
  few=$(cat few)
  echo "the price of GPT-3: 24 layers: $few, 96 layers: $many million instructions"
  awk -v a="$few" -v b="$many" 'BEGIN { exit !(a > 0 && b > 0 && b <= 4 * a) }' ||
    fail "96 layers take $many million instructions and 24 take $few"
else
  echo "skipped: instructions of the price of GPT-3, which valgrind counts"
fi
at_most 1.3 "price of GPT-3 on 1,024 and 8,192 ranks" 1 price_of_plan zero3.plan wide.plan
grep -q 'a step takes' log || { cat log; fail "the price of GPT-3"; }
read -r passes own < <(sort -n passes-96-zero3.plan)
echo "price of GPT-3: $own s, passes $passes s, a machine $slow times as slow as usual"
awk -v a="$own" -v p="$passes" -v s="$slow" 'BEGIN { exit !(a > 0 && a < s && p > 0 && p < s / 2) }' ||
  fail "the price of GPT-3 takes $own s, of which the passes $passes s, on a machine $slow times as slow as usual"

# A chain of values that each read the one before twice costs what its length
# is, not what the number of paths through it is.
shared() { # body of the repeat, length, what reads x
  cat >shared.dnn <<END
dim B = 4, T = 3, C = 8
net f(x: [B, T, C]) -> [B, C] {
  param w: [C] = ones
  p = sin(iota(x, B))
  repeat i in $2 { $1 }
  return $3
}
data set { x: [B, T, C] = synthetic() }
train {
  loss      = mean(f(set.x) * f(set.x), (B, C))
  optimizer = sgd(lr = 0.1)
  steps     = 1
}
END
}
bounded() { # what option...
  local TIMEFORMAT='%U' seconds what=$1
  shift
  seconds=$({ time timeout 60 "$dnnc" build shared.dnn --no-cache "$@" \
    -o shared >log 2>&1; } 2>&1)
  [ -x shared/rank-0000 ] || { cat log; fail "$what"; }
  echo "$what: $seconds s"
  awk -v s="$seconds" 'BEGIN { exit !(s < 5) }' || fail "$what takes $seconds s"
}
shared 'x = x * w + x' 100 'x[T = 0]'
bounded "one element at the end of a chain"
shared 'x = x * w + x' 100 'mean(x, T)'
bounded "a shared expression in a kernel"
shared 'p = p * p' 14 'x[T = 0] * p * w'
bounded "a shared computation that ranks repeat" --ranks 2

#!/bin/bash
# The bytes that `dnnc show --collectives` lists for a step are those that the
# ranks count while they run it, and one timeline has all ranks on one clock.
. "$(dirname "$0")/lib.sh"
"$dnnc" show "$root/benchmarks/plans/tensor.plan" --collectives 2>err &&
  fail "collectives without a model"
grep -q "name it with --model MODEL" err || { cat err; fail "help"; }
has_mpi || skip "needs mpirun"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# counted RANK: the bytes of the collectives in the timeline of a rank.
counted() {
  sed -n "s/.*\"pid\":$1,\"tid\":[12],.*\"bytes\":\([0-9]*\).*/\1/p" trace.json |
    awk '{ sum += $1 } END { print sum + 0 }'
}

compare() {
  local plan=$root/benchmarks/plans/$1.plan model=$root/benchmarks/systems/$2.dnn
  shift 2
  "$dnnc" show "$plan" --model "$model" --collectives --json "$@" >shown.json ||
    fail "show $plan"
  local shown
  shown=$(field bytes_per_step shown.json)
  rm -f trace.json
  "$dnnc" run "$model" --plan "$plan" --steps 1 --no-save --quiet \
    --trace trace.json "$@" || fail "run $plan"
  [ "$shown" -gt 0 ] || fail "$plan: nothing is shown"
  for rank in 0 1 2 3; do
    [ "$(counted $rank)" = "$shown" ] ||
      fail "$plan: shown $shown bytes, rank $rank counted $(counted $rank)"
  done
  # Each collective of all ranks overlaps in time: none ends before another
  # rank has begun, but for the error of the clocks.
  sed -n 's/.*"pid":\([0-9]*\),"tid":[12],.*"ts":\([-0-9.]*\),"dur":\([0-9.]*\).*/\1 \2 \3/p' \
    trace.json | awk -v plan="$plan" '
      { first[$1] = ($1 in first) ? first[$1] : $2; last[$1] = $2 + $3 }
      END {
        for (a in last) for (b in last)
          if (first[a] - last[b] > 1000) { print plan, a, b; exit 1 } }' ||
    fail "$plan: ranks lie apart"
  [ "$(tail -n 1 trace.json)" = '],"displayTimeUnit":"ms"}' ] || fail "end"
}

compare zero3 mlp
compare tensor_microbatches gpt L=1
compare experts moe L=1
compare ring4 gpt L=1 T=16
compare ulysses gpt L=1
echo "five plans send the bytes that are shown"

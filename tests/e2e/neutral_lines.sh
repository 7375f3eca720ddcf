#!/bin/bash
# A line that states the placement which a value has anyway changes no byte of the
# final graph: each of some lines alone, and a line for every value at once.
. "$(dirname "$0")/lib.sh"

# Reads a partitioned graph, prints a line for each value of the forward pass that
# all of its readers see in one placement.
cat >placements.awk <<'AWK'
/ @/ || !/^  %/ { next }
{
  path = $NF
  gsub(/"/, "", path)
  op = $3
  type = $0
  sub(/.*\} : /, "", type)
  sub(/^  %.* = [a-z_0-9]* [^:]* : /, "", type)
  sub(/ "[^"]*"$/, "", type)
  if (op == "input" || op == "const" || $1 ~ /,$/) skip[path] = 1
  if (op ~ /^(all_gather|all_to_all|permute|shard|collect_microbatches)$/) skip[path] = 1
  if (!(path in last)) order[n++] = path
  last[path] = type
}
END {
  for (i = 0; i < n; i++) {
    path = order[i]
    type = last[path]
    if (path in skip || path == "" || type ~ /"|max@|min@|time/ || type !~ /\[[A-Z]/) continue
    line = ""
    sub(/^[a-z0-9]*\[/, "", type)
    sub(/\].*/, "", type)
    partial = type
    if (!sub(/.*; sum@/, "", partial)) partial = ""
    sub(/; .*/, "", type)
    k = split(type, dims, /, */)
    for (d = 1; d <= k; d++)
      if (split(dims[d], of, /[:@]/) == 3)
        line = line (line ? ", " : "") of[1] " over " of[3]
    if (partial) line = line (line ? ", " : "") "partial over " partial
    print "  " (line ? "shard " path ": " line : "replicate " path)
  }
}
AWK

# Lines name no micro-batches; axes in parentheses are one word for the script.
placements() { # GRAPH
  sed -E -e 's/, time([];)])/\1/g; s/@time([],;])/\1/g; s/@\(([a-z0-9]+)\)/@\1/g' \
    -e 's/@\(([a-z0-9]+), ([a-z0-9]+)\)/@<\1+\2>/g' "$1" |
    awk -f placements.awk | sed -E 's/<([a-z0-9]+)\+([a-z0-9]+)>/(\1, \2)/g'
}

final_graph() { # PLAN OUT
  # shellcheck disable=SC2086 # overrides are words
  "$dnnc" ir $model --plan "$1" --after=list_schedule >"$2" 2>messages ||
    { cat messages; fail "$model under $1"; }
}

check_lines() { # PLAN LINES WHAT
  { sed '$d' "$1" && cat "$2" && echo '}'; } >with.plan
  final_graph with.plan after.ir
  cmp -s before.ir after.ir || fail "$model under $1: $3"
}

total=0
check() { # PLAN MODEL [OVERRIDE]
  plan=$1 model="$root/${*:2}" i=0
  # shellcheck disable=SC2086
  "$dnnc" ir $model --plan "$plan" --after=partition >placed.ir 2>messages || { cat messages; fail "$model under $plan"; }
  final_graph "$plan" before.ir
  placements placed.ir >all.lines
  n=$(wc -l <all.lines)
  [ "$n" -ge 10 ] || fail "only $n values of $model"
  while read -r line; do
    i=$((i + 1))
    [ $((i * samples / n)) = $(((i - 1) * samples / n)) ] && continue
    echo "$line" >one.line
    check_lines "$plan" one.line "'$line' changes the graph"
  done <all.lines
  check_lines "$plan" all.lines "$n lines together change the graph"
  total=$((total + n))
}

samples=${DNNC_LINES:-5}
printf 'mesh { data = 4 }\nplan {\n  shard B over data\n}\n' >data.plan
printf 'mesh { data = 4 }\nplan {\n  shard N over data\n}\n' >images.plan
printf 'mesh {\n  data = 2\n  tensor = 2\n}\nplan {\n  shard H, F, V over tensor\n}\n' >tensor.plan
printf 'mesh {\n  data = 2\n  tensor = 2\n}\nplan {\n  zero = 3\n  shard H, F over tensor\n  microbatches = 2\n}\n' >zero.plan
plans=$root/benchmarks/plans
check "$plans/gpt3.plan" models/gpt3.dnn L=2
check data.plan models/gpt2.dnn L=2
check tensor.plan models/gpt2.dnn L=2
check zero.plan models/gpt2.dnn L=2
check "$plans/tensor_2d.plan" models/gpt2.dnn L=2
check "$plans/weights_2d.plan" models/gpt2.dnn L=2
check "$plans/ring.plan" models/gpt2.dnn L=2
check "$plans/sequence.plan" models/gpt3.dnn L=2
check "$plans/sequence_zero3.plan" models/gpt3.dnn L=2
check tensor.plan models/chargpt.dnn L=2
check data.plan models/mlp.dnn
check images.plan models/lenet.dnn
check images.plan models/vgg16.dnn
check data.plan models/moe.dnn L=2
echo "$total lines"

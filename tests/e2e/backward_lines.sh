#!/bin/bash
# Lines decide the backward pass too: gradients have the shards of their values, and
# the gradients of an operator are computed over its iteration dims.
. "$(dirname "$0")/lib.sh"
plans=$root/benchmarks/plans

# Partial sums of gradients of a sharded sequence are scattered before they are
# rounded.  In [T, B, C] they have T; statistics of the loss, and gradients of
# parameters, are what is summed over all ranks of the axis.
"$dnnc" show "$plans/sequence.plan" --model "$root/models/gpt3.dnn" L=2 --collectives >shown || fail "show"
awk '$2 == "tensor" && $5 == "dgrad" && $1 == "all_reduce"' shown >reduced
[ ! -s reduced ] || { cat reduced; fail "a gradient of a value is reduced in full"; }
[ "$(grep -c '^all_reduce *tensor .*loss.cross_entropy' shown)" = 3 ] || { cat shown; fail "sums of the loss"; }
[ "$(awk '$1 == "reduce_scatter" && $2 == "tensor" && $5 == "dgrad"' shown | wc -l)" = 5 ] ||
  { cat shown; fail "gradients that are scattered"; }

# Messages have the dtype that they have without the line, and ranks compute what
# one does: in f32, bf16 and f16.
model=$root/benchmarks/systems/gpt.dnn
"$dnnc" ir "$model" precision.compute=bf16 --plan "$plans/sequence.plan" --after=partition >bf16.ir || fail "ir"
grep -c '= reduce_scatter .* : f32\[.*@dgrad' bf16.ir >f32.count
[ "$(cat f32.count)" -ge 2 ] || fail "sums of three products are f32"
for case in 'sequence' 'sequence_bf16 precision.compute=bf16' 'sequence precision.compute=bf16' \
  'sequence precision.compute=f16 precision.loss_scale=dynamic' 'sequence_zero3 precision.compute=bf16'; do
  # shellcheck disable=SC2086 # words
  set -- $case
  "$dnnc" verify "$model" --plan "$plans/$1.plan" "${@:2}" >out 2>&1 || { cat out; fail "verify $case"; }
done

# The gradients of an operator are computed over the dims of its line that they have,
# and over no others.
cat >shards.awk <<'AWK'
# Prints PATH: DIM@AXIS ... of the operands of each product, look-up and gradient of attention.
/^  %/ {
  split($1, id, ",")
  type = $0
  sub(/ "[^"]*"$/, "", type)
  sub(/ @[a-z]*$/, "", type)
  sub(/.* : /, "", type)
  types[id[1]] = type
  path = $NF
  gsub(/"/, "", path)
  if (!(/@dgrad|@wgrad/) || !(/ = (dot|conv_input_grad|conv_weight_grad|attention_grad) /)) next
  rest = $0
  sub(/^[^=]*= /, "", rest)
  sub(/ \{.*/, "", rest)
  n = split(rest, operands, /[ ,]+/)
  found = ""
  for (i = 2; i <= n; i++) {
    k = split(types[operands[i]], dims, /[][,;] */)
    for (d = 1; d <= k; d++)
      if (dims[d] ~ /@/ && dims[d] !~ /^sum/) {
        split(dims[d], of, /[:@]/)
        word = of[1] "@" of[3]
        if (!index(found " ", " " word " ")) found = found " " word
      }
  }
  print path ":" found
}
AWK
check_gradients() { # LINE PATH EXPECTED... : words that each product has, of these and no others
  printf 'mesh {\n  data = 2\n  tensor = 2\n}\nplan {\n  shard %s over data\n  shard %s\n}\n' "$batch" "$1" >line.plan
  # shellcheck disable=SC2086 # words
  "$dnnc" ir $subject --plan line.plan --after=partition >placed.ir 2>messages || { cat messages; fail "$1"; }
  awk -f shards.awk placed.ir | grep -F "grad.$2:" >gradients || fail "$1: no gradient of $2"
  [ "$(wc -l <gradients)" = $products ] || { cat gradients; fail "$1: not $products gradients"; }
  while IFS=: read -r _ words; do
    for word in $words; do
      case " ${*:3} " in *" $word "*) ;; *) cat gradients; fail "$1: $word" ;; esac
    done
    [ "$(wc -w <<<"$words")" = "$(($# - 2))" ] || { cat gradients; fail "$1: not all of ${*:3}"; }
  done <gradients
  "$dnnc" verify $subject --plan line.plan >out 2>&1 || { cat out; fail "verify $1"; }
}
subject=$model batch=B products=2
check_gradients 'block[0].mlp!dot[0]: F over tensor, B over data' 'block[0].mlp.dot[0]' F@tensor B@data
check_gradients 'block[0].mlp!dot[1]: F over tensor, B over data' 'block[0].mlp.dot[1]' F@tensor B@data
check_gradients 'block[0].mlp!dot[1]: T over tensor, B over data' 'block[0].mlp.dot[1]' T@tensor B@data
check_gradients 'block[1].mlp!dot[0]: C over tensor, B over data' 'block[1].mlp.dot[0]' C@tensor B@data
products=1
check_gradients 'block[0].attn!dot[2]: H over tensor, B over data' 'block[0].attn.dot[2]' H@tensor B@data
subject=$root/benchmarks/systems/lenet.dnn batch=N products=2
check_gradients 'conv2d[1]!conv: C over tensor, N over data' 'conv2d[1].conv' C@tensor N@data
check_gradients 'conv2d[1]!conv: O over tensor, N over data' 'conv2d[1].conv' O@tensor N@data

# A sum that the line causes in the backward pass is charged to it.
printf 'mesh {\n  data = 2\n  tensor = 2\n}\nplan {\n  shard B over data\n  shard %s\n}\n' \
  'block[0].mlp!dot[0]: F over tensor, B over data' >line.plan
"$dnnc" show line.plan --model "$model" --collectives >shown || fail "show a line"
grep -q "^all_reduce *tensor .* dgrad .*'grad.block\[0\].mlp.dot\[0\]': line.plan:7: " shown ||
  { cat shown; fail "the line of a gradient"; }
echo "lines decide"

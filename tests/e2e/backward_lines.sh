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

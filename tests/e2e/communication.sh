#!/bin/bash
# The collectives of published systems are those that their papers count, and
# `remat` lowers the memory of a rank.  Numbers are those of one block: what a
# graph with three has more than one with two.  Sums of parameter gradients and
# scalars do not count.
. "$(dirname "$0")/lib.sh"
gpt=$root/benchmarks/systems/gpt.dnn moe=$root/benchmarks/systems/moe.dnn
plans=$root/benchmarks/plans model=$gpt

# graph PLAN L [ARG...]: the collectives of the final graph before they are joined,
# one a line: operator, phase, the elements of its logical result, bytes of one, its
# path.
graph() {
  local plan=$1 l=$2
  shift 2
  "$dnnc" ir "$model" "L=$l" --plan "$plan" --after=list_schedule --disable bucket "$@" | awk '
    / = (all_reduce|all_gather|reduce_scatter|all_to_all|permute) / && !/@wgrad|@update/ {
      op = $0; sub(/^[^=]*= /, "", op); sub(/ .*/, "", op)
      phase = /@dgrad/ ? "backward" : "forward"
      type = $0; sub(/.*} : /, "", type); sub(/].*/, "", type)
      bytes = type ~ /^(bf16|f16)/ ? 2 : 4
      elements = 1; n = 0
      while (match(type, /:[0-9]+/)) {
        elements *= substr(type, RSTART + 1, RLENGTH - 1); n++
        type = substr(type, RSTART + RLENGTH)
      }
      path = $0; sub(/" *$/, "", path); sub(/.*"/, "", path)
      if (n) print op, phase, elements, bytes, path }'
}
# block PLAN [ARG...]: "phase operator number" of one block.
block() {
  local plan=$1
  shift
  graph "$plan" 2 "$@" >two
  graph "$plan" 3 "$@" >three
  awk 'NR == FNR { n[$2 " " $1]--; next } { n[$2 " " $1]++ }
       END { for (k in n) if (n[k]) print k, n[k] }' two three | sort
}
# is PLAN EXPECTED [ARG...]
is() {
  local plan=$1 expected=$2
  shift 2
  block "$plan" "$@" >found
  [ "$(tr '\n' ',' <found)" = "$expected" ] || { cat found; fail "${plan##*/}: not $expected"; }
}

# Megatron: two sums each way, also where the vocabulary is sharded.
for plan in tensor vocabulary tensor_microbatches; do
  is "$plans/$plan.plan" "backward all_reduce 2,forward all_reduce 2,"
done

# Sharded sequences: the backward pass gathers what the matmuls read again.
is "$plans/sequence.plan" \
  "backward all_gather 4,backward reduce_scatter 2,forward all_gather 2,forward reduce_scatter 2,"
sed 's/^plan {/&\n  keep block/' "$plans/sequence.plan" >keep.plan
is keep.plan \
  "backward all_gather 2,backward reduce_scatter 2,forward all_gather 2,forward reduce_scatter 2,"

# `reduce = bf16` halves the bytes of sums of values, but for those of the loss, which
# is f32, and of no others.
bf16=precision.compute=bf16
for plan in sequence tensor vocabulary tensor_2d; do
  sed 's/^plan.*{/&\n  reduce = bf16/' "$plans/$plan.plan" >reduce.plan
  for target in cpu cuda; do
    graph "$plans/$plan.plan" 2 $bf16 --target $target >before
    graph reduce.plan 2 $bf16 --target $target >after
    paste -d' ' before after | awk -v target=$target '
      { is_sum = $1 ~ /reduce/ && $5 !~ /^(grad.)?(loss|block.*layernorm|norm)/
        wanted = is_sum ? 2 : $4
        if ($1 != $6 || $3 != $8 || $5 != $10 || $9 != wanted) { print; bad = 1 }
        n += is_sum && $4 == 4 }
      END { exit bad || n == 0 }' || fail "$plan on $target: the bytes of reduce = bf16"
  done
done

# One line about a value, the first, one in the middle or the last of its kind,
# shards the sequence of all values between matmuls, before and after it.
messages() { graph "$1" 2 | cut -d ' ' -f 1-4 | sort; }
messages "$plans/sequence.plan" >published
for value in 'x[0]' 'block[0].x' 'block[1].x'; do
  sed "/shard x/d; s/block.x/$value/" "$plans/sequence.plan" >one.plan
  messages one.plan >found
  cmp -s published found || { diff published found; fail "a line of $value: other messages"; }
done

# Experts over the ranks of the batch (GShard): two exchanges each way.
cat >gshard.plan <<'END'
mesh { data = 2; expert = 2 }
plan {
  shard B over (data, expert)
  shard E over expert
  replicate moe_block.experts.wg
}
END
model=$moe
is gshard.plan "backward all_to_all 2,forward all_to_all 2,"
model=$gpt
for plan in one.plan gshard.plan "$plans"/{tensor,sequence,zero3,experts}.plan; do
  [ "$(sed -n '/^plan {/,/^}/p' "$plan" | grep -c '[a-z]')" -le 6 ] ||
    fail "${plan##*/} has more than five lines"
done

# A gradient in other shards than its parameter is gathered, and not the
# parameter and its optimizer's state.
"$dnnc" ir "$gpt" --plan "$plans/sequence.plan" --after=list_schedule >update.ir
! grep -q ' = all_gather .*@update' update.ir || fail "the update gathers"
# With ZeRO, too.
sed '/shard grad/d' "$root/tests/random/found/update_gather.dnn" >moved.dnn
"$dnnc" ir moved.dnn --after=list_schedule >update.ir
! grep -q ' = all_gather .*@update' update.ir || fail "the update gathers under ZeRO"

# ZeRO 3: 6 matrices and 2 scales of norms twice, 8 biases once.  With room for it,
# nothing is gathered again that the end of the forward pass has.
sed 's/^plan {/&\n  prefetch = 1B/' "$plans/zero3.plan" >zero3.plan
is zero3.plan "backward all_gather 8,forward all_gather 16,"
is "$plans/zero3.plan" "forward all_gather 16,"
weights=$((4 * 16 * 16 + 2 * 16 * 64))
# gathers PLAN PHASE: a block gathers each weight once, in 16 bits.
gathers() {
  graph "$1" 2 precision.compute=bf16 | awk -v phase="$2" '
    $1 == "all_gather" && $2 == phase && $5 ~ /^block.0.*[.]w[a-z0-9]+$/ { sum += $3 * $4 }
    END { print sum + 0 }' >sum
  [ "$(cat sum)" = $((2 * weights)) ] || fail "$1 gathers $(cat sum) bytes $2"
}
gathers zero3.plan forward
gathers zero3.plan backward
"$dnnc" ir "$gpt" --plan "$plans/zero3_microbatches.plan" --after=list_schedule >micro.ir
all=$(grep -c ' = all_gather ' micro.ir) each=$(grep -c ' = all_gather .*per_microbatch = 1' micro.ir)
[ "$all" -gt 0 ] && [ "$all" = "$each" ] ||
  fail "$each of $all gathers are made for each micro-batch"

# ZeRO 1 and 2 gather what the update left once a step, before the micro-batches.
for level in 1 2; do
  is "$plans/zero$level.plan" "forward all_gather 16,"
  gathers "$plans/zero$level.plan" forward
  sed 's/^plan {/&\n  microbatches = 2/' "$plans/zero$level.plan" >micro.plan
  "$dnnc" ir "$gpt" --plan micro.plan --after=list_schedule >micro.ir
  ! grep ' = all_gather .*per_microbatch = 1' micro.ir || fail "zero $level gathers in each micro-batch"
done

# A step gathers each matrix twice in `compute` and scatters each gradient once in
# `grads`, with micro-batches in each; replicas reduce each gradient once.
# sent PLAN OPERATOR [ARG...]: the bytes of the operator in a step, for parameters.
sent() {
  local plan=$1 operator=$2
  shift 2
  "$dnnc" show "$plan" --model "$gpt" --collectives --json "$@" | sed -n \
    's/.*"operator":"'"$operator"'".*"bytes":\([0-9]*\),"times":\([0-9]*\),.*/\1 \2/p' |
    awk '$1 > 8 { sum += $1 * $2 } END { print sum + 0 }'
}
parameters=$(((48 + 12 + 2) * 16 + 2 * (weights + 8 * 16 + 64 + 16)))
echo 'mesh { data = 4 }' >data.plan
while read -r plan operator times; do
  for bytes in 4 2; do
    grads=f32
    [ $bytes = 2 ] && grads=bf16
    sum=$(sent "$plan" "$operator" precision.compute=bf16 precision.grads=$grads)
    more=$((sum - bytes * parameters * times)) # scalars in buckets
    [ $more -ge 0 ] && [ $more -le 8 ] ||
      fail "$plan: $operator of $sum bytes for $parameters parameters in $grads"
  done
done <<END
data.plan all_reduce 1
$plans/zero3.plan reduce_scatter 1
$plans/zero3_microbatches.plan reduce_scatter 2
END

# Ring: keys and values pass n - 1 ranks, backward again with their gradients,
# which are f32.
for n in 2 4; do
  echo "mesh { seq = $n };plan { attention = ring;shard T over seq }" | tr ';' '\n' >ring.plan
  is ring.plan "backward permute $((2 * n - 2)),forward permute $((n - 1))," T=16
  for l in 2 3; do
    graph ring.plan $l T=16 precision.compute=bf16 | awk '$1 == "permute" { print $2, $4 }'
  done | sort | uniq -c | awk -v n=$n '{ if ($1 != 5 * (n - 1)) bad = 1; kinds++ }
    END { exit bad || kinds != 3 }' || fail "ring of $n: bytes of permutes"
  # Four all-to-alls each way, where the ranks divide the heads of keys.
  echo "mesh { seq = $n };plan { attention = ulysses;shard T over seq }" | tr ';' '\n' >ulysses.plan
  is ulysses.plan "backward all_to_all 4,forward all_to_all 4," T=16
  # Else keys and values are gathered, and their gradients scattered.
  model=$root/models/llama.dnn
  is ulysses.plan "backward all_gather 2,backward all_to_all 2,backward reduce_scatter 2,forward all_gather 2,forward all_to_all 2," \
    B=4 T=16 V=64 C=32 F=64 G=1 H=4 D=8 precision.compute=f32
  model=$gpt
done

# Cross-entropy over a sharded vocabulary: three numbers a token.
graph "$plans/vocabulary.plan" 2 | awk '$5 ~ /loss/ { n[$2] += $3 }
  END { print n["forward"] + 0, n["backward"] + 0 }' >sum
[ "$(cat sum)" = "$((3 * 8 * 12)) 0" ] || fail "cross-entropy sends $(cat sum)"

# The activations of six blocks, and of one and the results of the others.
need() { # lines of the plan, model
  printf 'mesh { data = 2 }\nplan { memory = 1KB; %s }\n' "$1" | tr ';' '\n' >memory.plan
  shift
  "$dnnc" build "$@" --plan memory.plan 2>&1 |
    sed -n 's/.*a rank needs \([0-9.]*\) MB.*/\1/p'
}
sizes="B=16 L=6 C=64 T=64 V=96"
# shellcheck disable=SC2086
stored=$(need "" "$gpt" $sizes) again=$(need "remat block" "$gpt" $sizes)
awk -v a="$stored" -v b="$again" 'BEGIN { exit !(b > 0 && b < 0.6 * a) }' ||
  fail "$again MB with remat, $stored MB without"
echo "one block as published; $stored MB of memory, $again MB with remat"

# The gates of six recurrent layers, and what they carry from step to step.
cp "$root/models/lib.dnn" .
cat >recurrent.dnn <<'END'
import "lib.dnn"
dim B = 32, T = 64, C = 16
net f(x: [B, T, C]) -> [B, T, C] {
  repeat i in 6 { x = lstm[T, C -> C](x) }
  return x
}
data d { x: [B, T, C] = synthetic(); y: [B, T, C] = synthetic() }
train { loss = mse(f(d.x), d.y); optimizer = sgd(lr = 0.1); steps = 2 }
END
stored=$(need "" recurrent.dnn) again=$(need "remat lstm" recurrent.dnn)
awk -v a="$stored" -v b="$again" 'BEGIN { exit !(b > 0 && b < 0.6 * a) }' ||
  fail "recurrent layers: $again MB with remat, $stored MB without"
echo "recurrent layers: $stored MB of memory, $again MB with remat"

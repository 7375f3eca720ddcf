#!/bin/bash
# A model with a loop: its plan is no slower than each of a few hundred plans that are written out here, and its bound is
# not above any of those in its space, those that shard the hidden dim of the loop included.
. "$(dirname "$0")/lib.sh"
models=$(dirname "$0")/../../models
cluster=$models/pipedream-a.cluster

cp "$models/lib.dnn" .
cat >words.dnn <<'END'
import "lib.dnn"
dim B = 16, T = 12, V = 8192, E = 192, C = 256

net words(tok: i32[B, T]) -> [B, T, V] {
  param emb: [V, E] = normal(1.0)
  return linear[C -> V](lstm[T, E -> C](gather(emb, tok, V)))
}

data d {
  x: i32[B, T] = synthetic(V)
  y: i32[B, T] = synthetic(V)
}

train {
  loss      = cross_entropy(words(d.x), d.y, V)
  optimizer = adam(lr = 1e-3)
  steps     = 10
}
END

# ---- all plans of a few choices ----
plans=()
# write MESH SHARDS: with each level of ZeRO and number of micro-batches.
write() {
  local zero m path
  for zero in 0 1 2 3; do
    for m in 1 2 4; do
      path=p${#plans[@]}.plan
      printf 'mesh {\n%s}\nplan words {\n  zero = %s\n  microbatches = %s\n%s}\n' "$1" $zero $m "$2" >"$path"
      plans+=(--plan "$path")
    done
  done
}
# lines DIMS_OF_A DIMS_OF_B: "B" of one axis and "BV" of the other are lines about B over both and V over one.
lines() {
  local dim axes
  for dim in B V E C; do
    axes=
    case $1 in *$dim*) axes=a ;; esac
    case $2 in *$dim*) axes=${axes:+$axes, }b ;; esac
    [ -z "$axes" ] || printf '  shard %s over (%s)\n' $dim "$axes"
  done | sed 's/(\(.\))/\1/'
}
sets=("" B V BV C E)
for a in "${sets[@]}"; do
  write $'  a = 4\n' "$(lines "$a" "")"$'\n'
  for b in "${sets[@]}"; do
    write $'  a = 2\n  b = 2\n' "$(lines "$a" "$b")"$'\n'
  done
done
"$dnnc" simulate words.dnn --cluster "$cluster" "${plans[@]}" --json >all.json 2>all.err || { tail -n 3 all.err; fail "prices"; }
grep -o '"step_s":[^,]*' all.json | cut -d: -f2 | sort -g >steps
[ "$(wc -l <steps)" = $((${#plans[@]} / 2)) ] || fail "$(wc -l <steps) prices of $((${#plans[@]} / 2)) plans"
best=$(head -n 1 steps)

# ---- the plan that is found ----
"$dnnc" plan words.dnn --cluster "$cluster" --ranks 4 --json -o found.plan >found.json 2>found.err ||
  { cat found.err; fail "no plan"; }
[ "$(field elimination found.json)" -gt 0 ] || fail "no assignment of units was found"
awk -v found="$(field step_s found.json)" -v best="$best" 'BEGIN { exit !(found <= best) }' ||
  fail "$(field step_s found.json) s, and a plan takes $best s"
awk -v bound="$(field bound_s found.json)" -v best="$best" 'BEGIN { exit !(bound <= best && bound > 0.8 * best) }' ||
  fail "the bound is $(field bound_s found.json) s, and a plan takes $best s"
grep -q 'restrictions = ".*whole_loops' found.plan || fail "the bound does not say that loops are whole"
grep -q 'no operator placed' found.plan && fail "no unit"

# ---- verify ----
check() { "$dnnc" verify words.dnn --plan "$1" --cluster "$cluster" --certificate >verify.out 2>&1; }
check found.plan || { cat verify.out; fail "its certificate"; }
grep -q 'no plan of its space that fits is faster' verify.out || { cat verify.out; fail "the bound is not checked"; }
sed 's/ whole_loops//' found.plan >wider.plan
check wider.plan && fail "a bound of all loops is accepted"
grep -q "loops are whole" verify.out || { cat verify.out; fail "no word about loops"; }
"$dnnc" verify words.dnn --plan found.plan B=8 T=3 V=64 E=8 C=8 >verify.out 2>&1 ||
  { cat verify.out; fail "the plan computes something else"; }

# ---- several kinds of devices, and stages ----
"$dnnc" plan words.dnn --cluster "$models/mixed.cluster" --effort 40 --json -o mixed.plan >mixed.json 2>mixed.err ||
  { cat mixed.err; fail "no plan of several kinds"; }
"$dnnc" verify words.dnn --plan mixed.plan --cluster "$models/mixed.cluster" --certificate >verify.out 2>&1 ||
  { cat verify.out; fail "the certificate of several kinds"; }
"$dnnc" plan words.dnn --cluster "$cluster" --ranks 4 --search stages --effort 40 --json -o staged.plan >staged.json \
  2>staged.err || { cat staged.err; fail "no plan with stages"; }
grep -q 'by the simulated times of nodes' staged.plan || fail "stages are not cut by simulated times"
check staged.plan || { cat verify.out; fail "the certificate of stages"; }

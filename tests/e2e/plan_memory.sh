#!/bin/bash
# A training step holds on a rank, by kind, as much as published formulas say.
# Plans are compiled and nothing runs (15 s).
. "$(dirname "$0")/lib.sh"
plans=$root/benchmarks/plans

# plan LINE;...: writes it.
plan() { tr ';' '\n' <<<"$1" >"$2"; }
# peak PLAN MODEL [ARG...]: peak.json, with the bytes of each kind.
peak() {
  local plan=$1 model=$2
  shift 2
  "$dnnc" show "$plan" --model "$model" --json "$@" >peak.json 2>peak.err ||
    { cat peak.err; fail "show $plan"; }
}
# bytes KEY: of peak.json.
bytes() { grep -o "\"$1\":[0-9]*" peak.json | head -n 1 | cut -d: -f2; }
most() { [ "$2" -le "$3" ] || fail "$1: $2 bytes, at most $3"; }
# near NAME BYTES EXPECTED: at most a thousandth of padding more.
near() {
  [ "$2" -ge "$3" ] || fail "$1: $2 bytes, expected $3"
  most "$1" "$2" $(($3 + $3 / 1000))
}

# ---- ZeRO (Rajbhandari et al. 2020, section 5) on 8 ranks ----
# Of P parameters a rank holds 4 P bytes in f32 and 8 P of Adam's state; levels 1
# to 3 keep an eighth of both.  A step computes with 2 P bytes in bf16 (biases and
# norms in f32), beside which the look-up gathers the embeddings in f32; level 3
# gathers in two pieces at most at a time.  Gradients are f32: 4 P in all, to which
# the tied embedding adds its two parts; levels 2 and 3 have an eighth and what is on
# its way: the largest gradient and three buckets.
P=124439808 N=8 embedding=$((4 * 50264 * 768)) positions=$((4 * 1024 * 768))
echo "level  weights  optimizer  in bf16  gradients  MB of gpt2 on each of $N ranks"
for level in 0 1 2 3; do
  plan "mesh { data = $N };plan {;zero = $level;microbatches = 4;}" zero.plan
  peak zero.plan "$root/models/gpt2.dnn" B=32
  share=$((P / N)) gathered=$((2 * P + embedding + positions))
  [ $level = 0 ] && share=$P gathered=0
  [ $level = 3 ] && gathered=$((embedding + positions))
  near "zero $level: weights" "$(bytes param)" $((4 * share))
  near "zero $level: optimizer" "$(bytes optimizer_state)" $((8 * share))
  most "zero $level: gathered" "$(bytes most_gathered)" $((gathered + gathered / 1000))
  most "zero $level: in bf16" "$(bytes most_weights)" $((2 * share + share / 20))
  most "zero $level: gradients" "$(bytes most_gradients)" \
    $((4 * P + 2 * embedding + positions + share / 20))
  [ $level -lt 2 ] || most "zero $level: gradients on their way" "$(bytes gradients)" \
    $((4 * share + embedding + 3 * 25000000))
  awk -v l=$level -v w="$(bytes param)" -v o="$(bytes optimizer_state)" \
    -v b="$(($(bytes most_weights) + $(bytes most_gathered)))" -v g="$(bytes gradients)" \
    'BEGIN { printf "%5d  %7.1f  %9.1f  %7.1f  %9.1f\n", l, w / 1e6, o / 1e6, b / 1e6, g / 1e6 }'
done

# ---- remat of every block (Chen et al. 2016) ----
# The saved activations of L blocks are their inputs and those of one block.
L=12 sizes="B=32 T=256 C=256 H=4 V=1024"
while read -r name shards file lines; do
  [ "$file" = - ] || lines=$(grep -v '^#' "$plans/$file.plan" | tr '\n' ';')
  plan "$lines" stored.plan
  plan "${lines%\}*}remat block;}" again.plan
  # shellcheck disable=SC2086 # sizes are words
  peak stored.plan "$root/models/gpt2.dnn" $sizes
  stored=$(bytes packed) block=$(($(bytes most_saved) / L))
  # shellcheck disable=SC2086
  peak again.plan "$root/models/gpt2.dnn" $sizes
  inputs=$((L * 4 * 32 * 256 * 256 / shards))
  most "$name: saved" "$(bytes most_saved)" $((inputs + block))
  [ "$(bytes most_saved)" -ge $inputs ] || fail "$name: $(bytes most_saved) saved"
  [ "$(bytes packed)" -lt "$stored" ] || fail "$name: the peak is no lower"
  echo "remat, $name: $(bytes most_saved) bytes saved, $L inputs are $inputs and a block" \
    "$block; packed $(bytes packed), without $stored"
done <<'END'
data          4 - mesh { data = 4 };plan {;}
micro-batches 8 - mesh { data = 4 };plan {;microbatches = 2;}
tensor        2 - mesh { data = 2;tensor = 2 };plan {;shard H, F, V over tensor;}
zero3         4 - mesh { data = 4 };plan {;zero = 3;}
zero3-micro   8 - mesh { data = 4 };plan {;zero = 3;microbatches = 2;}
sequence      4 sequence
context       4 context
tensor-zero3  2 tensor_zero3
END

# Where it does not lower the peak, a warning says what is there instead.
plan "mesh { data = 2 };plan {;remat block[0].mlp.gelu_tanh;}" late.plan
peak late.plan "$root/benchmarks/systems/gpt.dnn" V=4096 B=2 T=4
grep -q "late.plan:3:1: warning: 'remat' does not lower the peak memory" peak.err ||
  { cat peak.err; fail "no warning"; }
grep -q "bytes are gradients of parameters" peak.err || { cat peak.err; fail "what is at the peak"; }

# ---- what collectives give and take is not copied ----
# copies PLAN: kernels that only move what a gather gave or a scatter takes.
copies() {
  "$dnnc" ir "$root/benchmarks/systems/gpt.dnn" --plan "$1" --after=list_schedule | awk '
    /^  %/ { name = $1; op = $3 }
    /^  %/ && / = (merge_dims|slice|split_dim|after|rename) / {
      split($0, words, /[ ,]+/); root[name] = (words[5] in root) ? root[words[5]] : words[5] }
    / = fused %[0-9]+ .*{$/ { from = $4; n_ops = moves = 0 }
    /^    %/ && $3 != "input" { n_ops++; moves += $3 == "transpose" || $3 == "copy" }
    /^  }$/ && n_ops == 1 && moves == 1 { moved[name] = from }
    / = (all_gather|reduce_scatter) / { # several results and operands
      is_gather = / = all_gather /; is_operand = 0
      for (i = 1; $i !~ /^{/; i++) {
        word = $i; sub(/,/, "", word)
        if (word == "=") is_operand = 1
        else if (is_gather && !is_operand) gathered[word] = 1
        else if (!is_gather && is_operand) sent[word] = 1
      } }
    END { for (k in moved) if (moved[k] in gathered || k in sent || root[k] in sent) n++
          print n + 0 }'
}
for plan in zero1 zero2 zero3 zero3_microbatches zero3_node; do
  n=$(copies "$plans/$plan.plan")
  [ "$n" = 0 ] || fail "$plan: $n copies behind gathers and before scatters"
done
n=$(copies "$plans/weights_2d.plan") # gathers of an inner dim, which need one
[ "$n" -gt 0 ] || fail "no copies are found where there are some"

# ---- a parameter that is sharded over an axis of ZeRO takes the other one ----
plan "mesh { data = 2;tensor = 2 };plan {;zero = 3 over (data, tensor);shard H1 over tensor;}" axes.plan
peak axes.plan "$root/models/mlp.dnn"
near "zero 3 over both axes: weights" "$(bytes param)" $((4 * 535818 / 4))

# ---- gradients of micro-batches are added up inside the matmuls ----
for plan in tensor_microbatches remat sixteen; do
  "$dnnc" ir "$root/benchmarks/systems/gpt.dnn" --plan "$plans/$plan.plan" \
    --after=list_schedule >micro.ir
  [ "$(grep -c ' = dot .*axes = \[time\]' micro.ir)" -ge 12 ] || fail "$plan: matmuls that add"
  awk '/^  %/ && / = dot / { dot[$1] = 1 }
       / = accumulate / { for (i = 4; i <= NF; i++) { sub(/,/, "", $i); if ($i in dot) bad = 1 } }
       END { exit bad }' micro.ir || fail "$plan: a product beside the sum"
done
# ---- with more memory a plan is found that is no slower ----
before=0
for limit in 32 36; do
  "$dnnc" plan "$root/models/llama.dnn" --cluster "$root/models/h100x256.cluster" --ranks 8 \
    --what-if "memory=${limit}GiB" --json >limit.json 2>limit.err || fail "no plan in $limit GiB: $(cat limit.err)"
  step=$(sed -n 's/.*"step_s":\([0-9.e+-]*\).*/\1/p' limit.json)
  awk -v step="$step" -v before="$before" 'BEGIN { exit !(before == 0 || step <= before) }' ||
    fail "a step of $step s in $limit GiB, $before s in less"
  before=$step
done

# ---- lines offload make a plan fit, and its bound counts no bytes that they take away ----
gpt=("$root/models/chargpt.dnn" L=4 B=64)
printf 'cluster one {\n  device = h100_sxm\n  level node { count = 2; link = 450GB/s; latency = 0.9us; kind = switch }\n}\n' >one.cluster
plan "plan {;memory = 45MB;microbatches = 4;}" small.plan
plan "plan {;memory = 45MB;microbatches = 4;offload block, optimizer, wte;offload block.attn.wq, block.attn.wk, block.attn.wv, block.attn.wo, block.mlp.w1, block.mlp.w2;}" host.plan
"$dnnc" plan "${gpt[@]}" --cluster one.cluster --ranks 1 --plan small.plan -o found.plan >out 2>&1 && fail "a plan in 45 MB without offload"
"$dnnc" plan "${gpt[@]}" --cluster one.cluster --ranks 1 --plan host.plan -o found.plan >out 2>&1 || { cat out; fail "no plan in 45 MB"; }
grep -q '^  bound ' found.plan || { cat found.plan; fail "no bound of a plan that offloads"; }
"$dnnc" verify "${gpt[@]}" --plan found.plan --cluster one.cluster --certificate >out 2>&1 &&
  grep -q '^bound: computed again, no plan of its space that fits is faster' out || { cat out; fail "the bound of a plan that offloads"; }
echo "no copies behind the gathers of ZeRO, no products beside their sums"

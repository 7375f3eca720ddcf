#!/bin/bash
# Plans compute what one rank does: the short half of benchmarks/systems, and a
# checkpoint that goes from plan to plan.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
plans=$root/benchmarks/plans
# Plans that the pages name are there and checked, and the words of their commands find some.
page=$root/docs/systems.md pairs=$root/benchmarks/systems/pairs.txt
names=$(cat <(sed -n '/^## What one rank/,/^## What differs/s/^| [^|]*|\([^|]*\)|.*/\1/p' "$page") \
  <(sed -n 's/^|\([^|]*\)|.*/\1/p' "$plans/README.md") | grep -oE '`[a-z0-9_]+`' | tr -d '`')
for name in $names; do
  [ -f "$plans/$name.plan" ] && grep -qE "^(short|long) +(short|long|-) +$name " "$pairs" ||
    fail "a page names $name, which is not there or in no pair"
done
[ "$(wc -w <<<"$names")" -gt 80 ] || fail "the pages name few plans"
words=$(grep -o '`run.sh [a-z0-9_]*`' "$page" | cut -d' ' -f2 | tr -d '`')
[ "$(wc -w <<<"$words")" -gt 20 ] || fail "docs/systems.md has few commands"
for word in $words; do
  grep -E '^(short|long) ' "$pairs" | grep -qF "$word" || fail "docs/systems.md: no pair has the word $word"
done
"$root/benchmarks/systems/run.sh" "$dnnc" short || fail "a pair differs"

sed -e 's/^dim .*/dim B = 12, T = 12, V = 48, C = 24, H = 4, D = C \/ H, F = 4 * C, L = 2/' \
    -e 's/synthetic(V) }/synthetic(V); eval = 19 }/' \
    -e 's/steps      = 20/steps = 12\n  eval_every = 4\n  save_every = 4\n  ema = 0.9/' \
    "$root/benchmarks/systems/gpt.dnn" >gpt.dnn
sed 's/data = 4/data = 3/' "$plans/zero3.plan" >zero3.plan

# Evaluation with its remainder, averages and the last losses are those of one
# rank, and the checkpoint has the same parameters under every plan that loads it.
"$dnnc" run gpt.dnn --json --no-save >one.json || fail "one rank"
losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2 \3/p' "$1"; }
# same FILE: each step in it has the loss and the norm of one rank.
same() {
  losses one.json >expected
  losses "$1" >found
  [ -s found ] && awk '
    NR == FNR { loss[$1] = $2; norm[$1] = $3; next }
    { a = $2 / loss[$1] - 1; b = $3 / norm[$1] - 1
      if (a * a > 1e-10 || b * b > 1e-10) bad = 1 }
    END { exit bad }' expected found || { paste expected found; fail "losses of $1"; }
}
hash() { grep -o '"parameters_sha256":\["[0-9a-f]*' "$1" | cut -d'"' -f4; }
# stage STEP NAME [OPTION...]: what step STEP saved is loaded, then training
# continues for four steps.
stage() {
  local step=$1 name=$2
  shift 2
  "$dnnc" run gpt.dnn --json --resume --steps "$step" "$@" >loaded.json 2>err ||
    { cat err; fail "load under $name"; }
  [ "$(hash loaded.json)" = "$saved" ] || fail "$name: other parameters"
  "$dnnc" run gpt.dnn --json --resume --steps $((step + 4)) "$@" >"$name.json" 2>err ||
    { cat err; fail "resume under $name"; }
  same "$name.json"
  saved=$(hash "$name.json")
}
"$dnnc" run gpt.dnn --json --steps 4 --plan "$plans/tensor.plan" >tensor.json || fail "tensor.plan"
same tensor.json
saved=$(hash tensor.json)
[ -n "$saved" ] || fail "no hash"
stage 4 zero3 --plan zero3.plan
stage 8 single
for key in loss norm validation_loss; do
  close "$(field $key one.json)" "$(field $key single.json)" 1e-5 ||
    fail "$key: $(field $key one.json) and $(field $key single.json)"
done
echo "saved by four ranks, continued by three under ZeRO 3, then by one"

# Saving takes the memory of a few blocks, however much the ranks hold.
"$dnnc" run "$root/benchmarks/systems/mlp.dnn" --json steps=1 H1=2048 H2=4096 save=large.ckpt \
  --plan "$plans/zero3.plan" >large.json || fail "a large model"
first() { grep -o "\"$1\":\[[0-9]*" large.json | cut -d[ -f2; }
state=$(cat large.ckpt/step-*/*.safetensors | wc -c)
more=$(($(first peak_resident_bytes) - $(first arena_bytes)))
[ "$state" -gt $((96 << 20)) ] && [ "$more" -lt $((64 << 20)) ] ||
  fail "rank 0 took $more bytes beside the arena to save $state"

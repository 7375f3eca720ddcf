#!/bin/bash
# dnnc sample writes the same text with a KV cache as with full windows, also
# past the window; random numbers, prompts of any kind, both vocabularies; a net
# that cannot be decoded one token at a time says so.
. "$(dirname "$0")/lib.sh"
quick_kernels
chargpt="$root/models/chargpt.dnn"
small="L=2 C=32 H=2 T=24 batch=4"
"$dnnc" run "$chargpt" $small --data "$root" --quiet --json steps=30 eval_batches=1 save=char.ckpt >/dev/null ||
  fail "train"
sample() { "$dnnc" sample "$chargpt" $small --load char.ckpt --json "$@"; }
tokens() { grep -o '"tokens":\[[^]]*' "$1"; }
same() { # arguments: with and without caches
  sample "$@" >with.json 2>err || { cat err; fail "sample $*"; }
  [ ! -s err ] || { cat err; fail "something to say"; }
  sample "$@" --whole-windows >without.json || fail "whole windows"
  [ -n "$(tokens with.json)" ] && [ "$(tokens with.json)" = "$(tokens without.json)" ] ||
    { cat with.json without.json; fail "other tokens with caches: $*"; }
  # Logarithms of probabilities, to rounding.
  paste -d' ' <(grep -o '"logprobs":\[[^]]*' with.json | cut -d[ -f2 | tr , '\n') \
    <(grep -o '"logprobs":\[[^]]*' without.json | cut -d[ -f2 | tr , '\n') |
    awk '{ d = $1 - $2; if (d < -1e-5 || d > 1e-5) bad++ } END { exit bad > 0 || NR < 2 }' ||
    fail "other logits with caches: $*"
}
same sample.temperature=0 --count 60
same sample.temperature=0 --count 40 --prompt "a text that is longer than the window of 24"
same sample.temperature=0 --count 30 --prompt ""
same --count 60 --seed 3
same sample.top_k=3 sample.temperature=1.5 --count 40 --prompt X
first=$(tokens with.json)
sample sample.top_k=3 sample.temperature=1.5 --count 40 --prompt X --seed 9 >other.json
[ "$first" != "$(tokens other.json)" ] || fail "the seed changes nothing"

# The text itself, and from the bundle of a training run.
"$dnnc" sample "$chargpt" $small --load char.ckpt --count 5 --prompt AB sample.temperature=0 >text || fail "text"
[ "$(head -c 2 text)" = AB ] && [ "$(wc -c <text)" -ge 8 ] || fail "not the prompt and 5 bytes"
"$dnnc" build "$chargpt" $small save=char.ckpt sample.temperature=0 -o char.bundle --quiet || fail "build"
char.bundle/run --sample --count 5 --prompt AB >text2 || fail "run --sample"
cmp text text2 || fail "run --sample: another text"

# Averages of the parameters are what is sampled from.
"$dnnc" run "$chargpt" $small ema=0.9 --data "$root" --quiet --json steps=10 eval_batches=1 save=ema.ckpt >/dev/null ||
  fail "train with averages"
"$dnnc" sample "$chargpt" $small ema=0.9 --load ema.ckpt --json --count 9 >ema.json || fail "averages"
"$dnnc" sample "$chargpt" $small --load ema.ckpt --json --count 9 >last.json || fail "without averages"
[ "$(grep -o '"logprobs.*]' ema.json)" != "$(grep -o '"logprobs.*]' last.json)" ] || fail "averages are not read"

# Byte pairs: a prompt in several scripts and one that is no UTF-8.
gpt2() { "$dnnc" "$@" L=1 C=8 H=2 T=16 batch=2 precision.compute=f32 --data "$root"; }
gpt2 run "$root/models/gpt2.dnn" steps=1 eval_batches=1 save=g.ckpt --quiet --json >/dev/null || fail "train gpt2"
gpt2 sample "$root/models/gpt2.dnn" --load g.ckpt --json --count 30 --prompt "Grüße, 世界 $(printf '\377')!" \
  >bpe.json || fail "byte pairs"
grep -q '"sample":"Grüße, 世界 \\ufffd!' bpe.json || { cat bpe.json; fail "the prompt does not come back"; }
[ "$(tokens bpe.json | tr -cd , | wc -c)" = 29 ] || fail "not 30 tokens"
gpt2 sample "$root/models/gpt2.dnn" V=50256 --load g.ckpt --count 3 >/dev/null 2>err
[ $? = 1 ] && grep -q '^differs:  wte is f32\[50257, 8\]' err || { cat err; fail "another vocabulary"; }

# Prompts that a small net does not know, and a net that looks ahead.
"$dnnc" sample "$chargpt" $small V=100 --load char.ckpt 2>/dev/null && fail "a checkpoint that does not fit"
sed 's/mask(s, T >= S)/s/' "$chargpt" >ahead.dnn
"$dnnc" sample ahead.dnn $small --load char.ckpt --json --count 9 >ahead.json 2>err || { cat err; fail "ahead"; }
grep -q "note: every token computes the full window: 'block\[0\].attn.p' reads later token positions" err || { cat err; fail "no note"; }
[ "$(tokens ahead.json | tr -cd , | wc -c)" = 8 ] || fail "not 9 tokens"

# Random numbers belong to a position of the window, so no token is decoded alone; a seed gives the same text again.
sed 's/x = gather(wte, tok, V) + wpe/&\n  x = x + normal(x) * 0.1/' "$chargpt" >noise.dnn
for name in noise again; do
  "$dnnc" sample noise.dnn $small --load char.ckpt --json --count 9 >$name.json 2>err || { cat err; fail "random numbers"; }
done
grep -q "note: every token computes the full window: .* makes random numbers along 'T'" err || { cat err; fail "no note of random numbers"; }
[ "$(tokens noise.json | tr -cd , | wc -c)" = 8 ] && [ "$(tokens noise.json)" = "$(tokens again.json)" ] || fail "random numbers of a sample"
"$dnnc" sample "$root/models/mlp.dnn" --load char.ckpt 2>err
[ $? = 1 ] && grep -q 'has no sample block' err || { cat err; fail "no sample block"; }

# Under a plan that shards parameters the same text comes from sharded decode
# caches, and only the two products of a block that sum over ranks communicate.
plans=$root/benchmarks/plans
"$dnnc" ir "$chargpt" $small --entry decode --plan "$plans/tensor.plan" --after=partition >decode.ir || fail "decode under a plan"
[ "$(grep -c 'H:2@tensor, D:16\] decode_cache' decode.ir)" = 4 ] || { cat decode.ir; fail "caches that are not sharded"; }
[ "$(grep -c ' all_reduce ' decode.ir)" = 4 ] && ! grep -E ' (all_gather|all_to_all|reduce_scatter|permute) ' decode.ir ||
  { cat decode.ir; fail "other communication than four sums"; }
has_mpi || exit 0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
f32="$small precision.compute=f32"
# under_plan MODEL PLAN CKPT OPTION...
under_plan() {
  local model=$1 plan=$2
  shift 2
  "$dnnc" sample "$model" "$@" --json >one.json || fail "one rank"
  "$dnnc" sample "$model" "$@" --json --plan "$plan" >many.json 2>err || { cat err; fail "sample under $plan"; }
  [ "$(tokens one.json)" = "$(tokens many.json)" ] || { cat one.json many.json; fail "another text under $plan"; }
  paste -d' ' <(grep -o '"logprobs":\[[^]]*' one.json | cut -d[ -f2 | tr , '\n') \
    <(grep -o '"logprobs":\[[^]]*' many.json | cut -d[ -f2 | tr , '\n') |
    awk '{ d = $1 - $2; if (d < -1e-4 || d > 1e-4) bad++ } END { exit bad > 0 || NR < 30 }' ||
    fail "other logits under $plan"
}
under_plan "$chargpt" "$plans/tensor_zero3.plan" $f32 --load char.ckpt --count 40 --prompt Hello --seed 3
lstm="T=16 E=8 C=16 B=8 precision.compute=f32"
"$dnnc" run "$root/models/charlstm.dnn" $lstm --data "$root" --quiet --json steps=5 eval_every=5 save=lstm.ckpt \
  >/dev/null || fail "train charlstm"
under_plan "$root/models/charlstm.dnn" "$plans/zero3.plan" $lstm --load lstm.ckpt --count 30

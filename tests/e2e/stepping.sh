#!/bin/bash
# dnnc sample decodes recurrent nets token by token from the saved carries of
# the scans. The text is that of a window large enough for all of it; it
# continues past a small window; states, averages, bundles, bf16, lists of
# prompts.
. "$(dirname "$0")/lib.sh"
quick_kernels
tokens() { grep -o '"tokens":\[[^]]*' "$1"; }
same() { # FILE FILE WHAT: same tokens, logarithms of probabilities to rounding
  [ -n "$(tokens "$1")" ] && [ "$(tokens "$1")" = "$(tokens "$2")" ] ||
    { cat "$1" "$2"; fail "$3: other tokens"; }
  paste -d' ' <(grep -o '"logprobs":\[[^]]*' "$1" | cut -d[ -f2 | tr , '\n') \
    <(grep -o '"logprobs":\[[^]]*' "$2" | cut -d[ -f2 | tr , '\n') |
    awk -v most="${4:-1e-5}" '{ d = $1 - $2; if (d < -most || d > most) bad++ } END { exit bad > 0 || NR < 2 }' ||
    fail "$3: other logits"
}

charlstm="$root/models/charlstm.dnn"
small="E=16 C=24 batch=4"
"$dnnc" run "$charlstm" $small T=16 --data "$root" --quiet --json steps=30 eval_batches=1 save=lstm.ckpt >/dev/null ||
  fail "train charlstm"
lstm() { "$dnnc" sample "$charlstm" $small --load lstm.ckpt --json "$@"; }
for arguments in "--count 90" "sample.temperature=0 --count 70 --prompt Ab" "sample.top_k=3 --count 60 --seed 4"; do
  lstm T=16 $arguments >step.json 2>err || { cat err; fail "sample $arguments"; }
  [ ! -s err ] || { cat err; fail "something to say"; }
  lstm T=128 $arguments --whole-windows >whole.json || fail "whole windows"
  same step.json whole.json "charlstm $arguments"
done
# A prompt longer than T is read to its end.
long="Anna Berta Carla Dora Emma Frida"
lstm T=16 --count 30 --prompt "$long" >step.json || fail "a long prompt"
lstm T=128 --count 30 --prompt "$long" --whole-windows >whole.json || fail "a long prompt, whole"
same step.json whole.json "a prompt longer than T"

# Nothing to write, nothing to begin with, likeliest or among all of few.
[ "$("$dnnc" sample "$charlstm" $small T=16 --load lstm.ckpt --count 0 --prompt Abc)" = Abc ] || fail "count 0"
lstm T=16 --count 0 --prompt "" >none.json || fail "count 0 of nothing"
grep -q '"sample":"","tokens":\[\],"logprobs":\[\]' none.json || { cat none.json; fail "count 0 of nothing: JSON"; }
lstm T=16 --count 30 --prompt "" >step.json && lstm T=64 --count 30 --prompt "" --whole-windows >whole.json || fail "empty"
same step.json whole.json "an empty prompt"
lstm T=16 --count 20 sample.top_k=1 >one.json && lstm T=16 --count 20 sample.temperature=0 >zero.json || fail "top_k"
[ "$(tokens one.json)" = "$(tokens zero.json)" ] || fail "top_k = 1 is not the likeliest"
lstm T=16 --count 20 sample.top_k=1000 >all.json && lstm T=16 --count 20 >free.json || fail "top_k above V"
[ "$(tokens all.json)" = "$(tokens free.json)" ] || fail "top_k above V is not all"
lstm T=16 --count 20 sample.top_p=1e-6 >one.json || fail "top_p"
[ "$(tokens one.json)" = "$(tokens zero.json)" ] || fail "a small top_p is not the likeliest"
lstm T=16 --count 60 sample.top_p=0.5 sample.temperature=2 >half.json && lstm T=16 --count 60 sample.temperature=2 >free.json || fail "top_p"
[ "$(tokens half.json)" != "$(tokens free.json)" ] || fail "top_p changes nothing"
lstm T=16 --count 60 sample.top_p=1 sample.temperature=2 >all.json
[ "$(tokens all.json)" = "$(tokens free.json)" ] || fail "top_p = 1 is not all"
for wrong in sample.top_p=0 sample.top_p=1.5 sample.top_k=-1 sample.temperature=-1 sample.count=-1; do
  lstm T=16 $wrong >/dev/null 2>err && fail "$wrong is taken"
  [ -s err ] || fail "$wrong: no message"
done
lstm T=16 --prompt "ZoÃ«" >/dev/null 2>err # V = 128
lstm T=16 --prompt "$(printf 'Zo\303\253')" >/dev/null 2>err
[ $? = 1 ] && grep -q "the prompt has token 195, but the net knows 128" err || { cat err; fail "a byte that the net does not know"; }

# From a bundle, and several prompts after each other: each begins anew.
"$dnnc" build "$charlstm" $small T=16 save=lstm.ckpt -o lstm.bundle --quiet --data "$root" || fail "build"
lstm T=128 --count 50 --prompt Q --whole-windows >whole.json || fail "Q"
lstm.bundle/run --sample --json --count 50 --prompt Q >step.json || fail "run --sample"
same step.json whole.json "bundle"
# Sampling from it takes no memory for training, however large that is.
"$dnnc" build "$charlstm" E=16 C=24 batch=4000000 T=1000 save=lstm.ckpt -o huge.bundle --quiet --data "$root" || fail "build huge"
huge.bundle/run --sample --json --count 50 --prompt Q >step.json || fail "sample from a huge bundle"
same step.json whole.json "a huge bundle"
printf 'Q\nAb\nQ\n' >prompts
lstm.bundle/run --sample --json --count 50 --prompts prompts >lines.json || fail "prompts"
[ "$(wc -l <lines.json)" = 3 ] || fail "not a line for each prompt"
head -n 1 lines.json >first.json
same first.json whole.json "the first of several prompts"
[ "$(sed -n 3p lines.json | grep -o '"tokens.*logprobs')" != "$(head -n 1 lines.json | grep -o '"tokens.*logprobs')" ] ||
  fail "the same draws for every prompt"
lstm T=16 sample.temperature=0 --count 20 --prompts prompts >lines.json || fail "prompts of dnnc sample"
head -n 1 lines.json >a.json
sed -n 3p lines.json >b.json
same a.json b.json "a prompt again"
lstm --prompts nowhere 2>err
[ $? != 0 ] && grep -q nowhere err || fail "a file that is not there"

# States are what the first carries begin with; the three layers have one name.
{ cat "$root/models/awdlm.dnn"; echo 'sample { model = awdlm; prompt = "x" }'; } >awd.dnn
awd="B=3 V=128 E=12 C=20"
"$dnnc" run awd.dnn $awd T=12 --quiet --json steps=5 save=awd.ckpt >/dev/null || fail "train awdlm"
"$dnnc" sample awd.dnn $awd T=12 --load awd.ckpt --json --count 40 >step.json 2>err || { cat err; fail "awdlm"; }
[ ! -s err ] || { cat err; fail "awdlm: something to say"; }
"$dnnc" sample awd.dnn $awd T=64 --load awd.ckpt --json --count 40 --whole-windows >whole.json || fail "awdlm, whole"
same step.json whole.json awdlm

# 16 bits: weights are rounded once, before the first position.
"$dnnc" sample "$charlstm" $small T=16 --load lstm.ckpt precision.compute=bf16 --json --count 40 sample.temperature=0 \
  >step.json || fail bf16
"$dnnc" sample "$charlstm" $small T=64 --load lstm.ckpt precision.compute=bf16 --json --count 40 sample.temperature=0 \
  --whole-windows >whole.json || fail "bf16, whole"
same step.json whole.json "bf16" 2e-2
"$dnnc" ir "$charlstm" $small precision.compute=bf16 --entry decode --after weight_precompute >step.ir 2>err || { cat err; fail "ir"; }
grep -q 'bf16.*cache "fixed/0"' step.ir || fail "weights are rounded for every token"
grep -q 'cast.*"linear.w"' step.ir && fail "a weight is rounded at each step"
exit 0

#!/bin/bash
# dnnc convert on files: GPT-2 under Hugging Face's names into a checkpoint that
# gpt2.dnn loads, and back; nn.Linear's layout for the MLP; mismatches.
. "$(dirname "$0")/lib.sh"
map=$root/models/gpt2-hf.map
theirs=$root/tests/reference/gpt2_hf.safetensors
"$dnnc" convert "$theirs" --map "$map" D=8 -o ours 2>err || { cat err; fail "convert"; }
grep -q 'note: .* no hashes of 28 tensors' err || { cat err; fail "hashes not spoken of"; }
"$dnnc" convert ours --map "$map" D=8 --reverse -o back --quiet 2>err || { cat err; fail "reverse"; }
[ ! -s err ] || { cat err; fail "hashes of our own are not known"; }
# The data of all tensors, in order of names; the headers differ.
"$dnnc" convert back --map "$map" D=8 -o ours2 --quiet --file-size 10KB || fail "again"
[ "$(ls ours2/model-*.safetensors | wc -l)" -gt 3 ] || fail "not several files"
"$dnnc" convert ours2/model.safetensors.index.json --map "$map" D=8 --reverse -o back2 --quiet || fail "index"
cmp back/model.safetensors back2/model.safetensors || fail "another round trip, other bytes"
# One file in place of several: the old index must not be found any more.
"$dnnc" convert back --map "$map" D=8 -o ours2 --quiet || fail "over an older one"
[ ! -e ours2/model.safetensors.index.json ] || fail "an old index is left"
[ -z "$(ls -A ours2 | grep unfinished)" ] || fail "something unfinished is left"

# Its greedy text is the recorded one, past the window of 12 too.
gpt2() {
  "$dnnc" sample "$root/models/gpt2.dnn" V=256 C=16 H=2 T=12 L=2 precision.compute=f32 \
    sample.vocabulary=bytes sample.temperature=0 "$@" --prompt ROMEO: --count 20 --json
}
gpt2 --load ours >sample.json 2>err || { cat err; fail "sample"; }
wanted="157,157,157,253,253,253,253,113,113,113,113,179,179,179,179,253,253,253,253,253"
grep -q "\"tokens\":\[$wanted\]" sample.json || { cat sample.json; fail "other tokens than recorded"; }
i=0
for p in -1.0260955536656675 -2.2499350486914227 -2.0260272165469924 -2.4220935990954917 \
  -1.6971589893137269 -1.9750657543454149 -1.588912441022994 -2.423426674849605; do
  i=$((i + 1))
  got=$(grep -o '"logprobs":\[[^]]*' sample.json | cut -d[ -f2 | cut -d, -f$i)
  close "$p" "$got" 1e-5 || fail "logarithm $i is $got, recorded was $p"
done

# Moving averages, which evaluation uses, are converted; --raw takes the others.
cat >average.dnn <<'END'
dim B = 32, P = 64, K = 10
net digits(x: [B, P]) -> [B, K] {
  param w: [P, K] = zeros
  state seen: [] = 0
  seen = seen + 1
  return dot(x, w, P)
}
data set {
  x: [B, P] = csv("data/inputs/uci-digits.csv.gz", 0..63) / 16
  y: i32[B] = csv("data/inputs/uci-digits.csv.gz", 64)
  eval = 297
}
train {
  loss = cross_entropy(digits(set.x), set.y, K)
  optimizer = sgd(lr = 0.1)
  steps = 40
  save = "average.ckpt"
}
END
loss_of() { # checkpoint, settings: the loss of the evaluation
  "$dnnc" eval average.dnn --quick --data "$root" --load "$@" --json >eval.json || fail "eval of $1"
  field validation_loss eval.json
}
"$dnnc" run average.dnn --quick --data "$root" ema=0.99 --quiet || fail "training with averages"
echo '{w,seen} = {w,seen}' >same.map
printf 'seen = seen\n"ema/w" = w\n' >named.map
"$dnnc" convert average.ckpt --map same.map -o averages 2>err || { cat err; fail "convert averages"; }
grep -qF "note: of 1 tensor of 'average.ckpt/step-00000040' the moving average is converted" err || { cat err; fail "averages are not spoken of"; }
"$dnnc" convert average.ckpt --map same.map -o raw --raw 2>err || { cat err; fail "convert --raw"; }
grep -q average err | grep -v '^raw' && { cat err; fail "--raw speaks of averages"; }
"$dnnc" convert average.ckpt --map named.map -o named 2>err || { cat err; fail "a map of the averages"; }
want=$(loss_of average.ckpt ema=0.99) plain=$(loss_of average.ckpt ema=0)
[ "$want" != "$plain" ] || fail "averages and parameters evaluate alike"
for folder in averages named; do
  [ "$(loss_of $folder ema=0.99)" = "$want" ] && [ "$(loss_of $folder ema=0)" = "$want" ] ||
    fail "$folder: $(loss_of $folder ema=0.99) in place of $want"
done
[ "$(loss_of raw ema=0)" = "$plain" ] || fail "--raw: $(loss_of raw ema=0) in place of $plain"
# There is nothing to choose where there are no averages.
"$dnnc" convert raw --map same.map -o raw2 2>err && cmp raw/model.safetensors raw2/model.safetensors || fail "without averages"
grep -q averages err && { cat err; fail "averages that are not there"; }

# All misfits at once, exit 1, nothing written.
"$dnnc" convert "$theirs" --map "$map" D=7 -o none 2>err
[ $? = 1 ] || fail "a misfit is not exit 1"
[ "$(grep -c '^differs:' err)" = 6 ] || { cat err; fail "not all misfits"; }
grep -q 'is f32\[16, 48\], the map has \[C, (H, D) + (H, D) + (H, D)\] with C = 16, D = 7' err ||
  { cat err; fail "not both shapes"; }
[ ! -e none ] || fail "something was written"
sed 's/ln_f.{weight,bias} = norm.{g,b}/ln_f.weight = norm.g/' "$map" >short.map
"$dnnc" convert "$theirs" --map short.map D=8 -o none 2>err
[ $? = 1 ] && grep -q '^extra:    transformer.ln_f.bias f32\[16\]' err || { cat err; fail "extra"; }
"$dnnc" convert "$theirs" --map "$map" -o none E=2 2>err
[ $? = 1 ] && grep -q "no dimension 'E'" err || { cat err; fail "unknown dim"; }

# The map prints as it is understood, and that is the same map.
"$dnnc" show "$map" >printed.map && "$dnnc" show printed.map | cmp - printed.map || fail "show"

# nn.Linear: [out, in].  There and back is what it was, and trains on.
awk '/^```map/ { n++; on = n == 1; next } /^```/ { on = 0 } on' "$root/docs/convert.md" >mlp.map
"$dnnc" run "$root/models/mlp.dnn" --data "$root" H1=16 H2=8 --steps 3 save=mlp.ckpt --json --quiet >run.json ||
  fail "train"
"$dnnc" convert mlp.ckpt --map mlp.map --reverse -o linear --quiet || fail "to nn.Linear"
head -c 4000 linear/model.safetensors | grep -aq '"fc1.weight":{"dtype":"F32","shape":\[16,784\]' || fail "not [out, in]"
"$dnnc" convert linear --map mlp.map -o mlp2.ckpt --quiet || fail "from nn.Linear"
hash_of() { grep -o '"parameters_sha256":\["[0-9a-f]*' "$1" | tail -n 1; }
"$dnnc" run "$root/models/mlp.dnn" --data "$root" H1=16 H2=8 --steps 0 --no-save --json --quiet \
  --load mlp2.ckpt >again.json 2>err || { cat err; fail "load"; }
[ "$(hash_of run.json)" = "$(hash_of again.json)" ] || fail "other parameters"

# Whatever call fails while it writes: exit 3, and what stood there is whole.
command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null || exit 0
"$dnnc" convert "$theirs" --map "$map" D=8 -o safe --quiet --file-size 20KB 2>/dev/null || fail "safe"
sum=$(cat safe/* | sha256sum)
count=0
for call in pwrite64 fsync renameat mkdir unlinkat; do
  for n in 1 2 3 7; do
    strace -f -o /dev/null -e trace=$call -e inject=$call:error=ENOSPC:when=$n \
      "$dnnc" convert "$theirs" --map "$map" D=8 -o safe --quiet --file-size 20KB 2>err
    code=$?
    [ $code = 0 ] && continue
    count=$((count + 1))
    [ $code = 3 ] && [ -s err ] || { cat err; fail "$call $n: exit $code"; }
    [ "$(cat safe/* | sha256sum)" = "$sum" ] || fail "$call $n: another checkpoint"
    "$dnnc" convert safe --map "$map" D=8 --reverse -o again --quiet || fail "$call $n: damaged"
    rm -rf safe/.unfinished-*
  done
done
[ $count -gt 6 ] || fail "only $count faults"

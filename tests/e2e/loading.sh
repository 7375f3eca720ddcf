#!/bin/bash
# --load takes a checkpoint of several files under another number of ranks, an
# index, a file of another tool; all mismatches are listed at once.
. "$(dirname "$0")/lib.sh"
quick_kernels
mlp="$root/models/mlp.dnn"
train() { "$dnnc" run "$mlp" H1=16 H2=8 --data "$root" --json --quiet "$@"; }
hash_of() { grep -o '"parameters_sha256":\["[0-9a-f]*' "$1" | tail -n 1; }

train --steps 3 --file-size 20KB save=many.ckpt >many.json || fail "many files"
train --steps 3 save=one.ckpt >one.json || fail "one file"
step=many.ckpt/step-00000003
[ "$(ls $step/*.safetensors | wc -l)" -gt 1 ] || fail "not several files"
grep -q '"total_size":' $step/model.safetensors.index.json || fail "no size"
for from in many.ckpt $step $step/model.safetensors.index.json one.ckpt \
  one.ckpt/step-00000003/model-00001-of-00001.safetensors; do
  train --load $from --steps 0 --no-save >loaded.json 2>err || { cat err; fail "load $from"; }
  [ "$(hash_of loaded.json)" = "$(hash_of one.json)" ] || fail "$from: other parameters"
  [ ! -s err ] || { cat err; fail "$from: has something to say"; }
done
if has_mpi; then
  train --ranks 2 --load many.ckpt --steps 0 --no-save >two.json || fail "two ranks"
  [ "$(hash_of two.json)" = "$(hash_of one.json)" ] || fail "two ranks: other parameters"
fi

# Everything that does not fit, with both shapes, and nothing trained.
"$dnnc" run "$mlp" H1=32 H2=8 --data "$root" --json --quiet --load one.ckpt \
  save=other.ckpt >other.json 2>err
[ $? = 1 ] || { cat err; fail "a misfit is not exit 1"; }
[ "$(grep -c '^differs: ' err)" = 3 ] || { cat err; fail "not all of them"; }
grep -q 'f32\[784, 16\], the model has f32\[784, 32\]' err || fail "not both shapes"
[ ! -s other.json ] && [ ! -e other.ckpt/latest ] || fail "it went on"

# A trained body under a new head: what only one side has is listed and
# skipped; the body is as trained, the head as it begins.
cat >old.dnn <<'END'
dim B = 8, P = 4, H = 6, K = 3
@frozen
layer body(x: [B, P]) {
  param w: [P, H] = normal(1)
  return tanh(dot(x, w, P))
}
net f(x: [B, P]) -> [B, K] {
  param head: [H, K] = zeros
  return dot(body(x), head, H)
}
data set { x: [B, P] = synthetic(records = 64); y: i32[B] = synthetic(3, records = 64) }
train { loss = cross_entropy(f(set.x), set.y, K); optimizer = sgd(lr = 0.1); steps = 4; save = "old.ckpt" }
END
sed 's/head/other/g; s/old\.ckpt/new.ckpt/' old.dnn >new.dnn
"$dnnc" run old.dnn --seed 5 --quiet >out || fail "the old model"
"$dnnc" run new.dnn --load old.ckpt --quiet >out 2>err && fail "a new name was taken"
"$dnnc" run new.dnn --partial --quiet >out 2>err && fail "--partial without --load"
"$dnnc" run new.dnn --load old.ckpt --partial --quiet >out 2>err || { cat err; fail "--partial"; }
[ "$(cat err)" = "missing:  other f32[6, 3]
extra:    head f32[6, 3]" ] || { cat err; fail "--partial lists something else"; }
hash_in() { grep -ao "\"xxh3:$2\":\"[0-9a-f]*" "$1"/step-*/model-00001*.safetensors; }
[ -n "$(hash_in old.ckpt body.w)" ] || fail "no hash"
[ "$(hash_in old.ckpt body.w)" = "$(hash_in new.ckpt body.w)" ] || fail "the body was not taken"
# A tensor of another size begins as the model says; here that is all but one.
sed 's/other/head/g; s/K = 3/K = 5/; s/synthetic(3,/synthetic(5,/' new.dnn >wider.dnn
"$dnnc" run wider.dnn --load old.ckpt --quiet >out 2>err && fail "another size was taken"
grep -q '^differs:  head is f32\[6, 3\], the model has f32\[6, 5\]$' err || { cat err; fail "not said to differ"; }
rm -rf new.ckpt
"$dnnc" run wider.dnn --load old.ckpt --partial --quiet >out 2>err || { cat err; fail "--partial, another size"; }
[ "$(cat err)" = "skipped:  head is f32[6, 3], the model has f32[6, 5]" ] || { cat err; fail "not said to be skipped"; }
[ "$(hash_in old.ckpt body.w)" = "$(hash_in new.ckpt body.w)" ] || fail "the body was not taken beside another size"
"$dnnc" run new.dnn H=7 --load old.ckpt --partial --quiet >out 2>err && fail "nothing of the same size was taken"
sed 's/body/corpus/g' new.dnn >far.dnn
"$dnnc" run far.dnn --load old.ckpt --partial --quiet >out 2>err && fail "nothing in common was taken"

# A file of step 4 among those of step 8: the folder is refused with the file
# and both steps, and the older checkpoint is taken aloud.
train --steps 8 --file-size 1000 save_every=4 save=mixed.ckpt >out || fail "a run to be mixed"
old=mixed.ckpt/step-00000004 new=mixed.ckpt/step-00000008
train --load $old --steps 0 --no-save >four.json || fail "step 4"
file=$(basename "$(ls $new/*00002-of*)")
cp $old/$file $new/
train --load $new --steps 0 --no-save >out 2>err
[ $? = 1 ] || { cat err; fail "mixed files: not exit 1"; }
[ "$(cat err)" = "error: '$new': '$file' is of step 4, but 'model.safetensors.index.json' is of step 8: files of different saves lie in one folder" ] ||
  { cat err; fail "mixed files: another message"; }
train --load mixed.ckpt --steps 0 --no-save >mixed.json 2>err || { cat err; fail "no fall-back"; }
grep -q "^warning: skipped a checkpoint: '$new': '$file' is of step 4" err || { cat err; fail "a silent fall-back"; }
grep -qx "warning: taking '$old'" err || { cat err; fail "what is taken is not said"; }
[ "$(hash_of mixed.json)" = "$(hash_of four.json)" ] || fail "mixed files: other parameters"

# Values that nobody can train with are said, with the first tensor.
cat >two.dnn <<'END'
dim B = 4, P = 2
net f(x: [B, P]) -> [B] { param w: [P] = ones; return dot(x, w, P) }
data set { x: [B, P] = synthetic(records = 16); y: [B] = synthetic(records = 16) }
train { loss = mse(f(set.x), set.y); optimizer = sgd(lr = 0.1); steps = 1 }
END
odd='{"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}'
{ printf "\\x$(printf %02x ${#odd})\0\0\0\0\0\0\0$odd" &&
  printf '\x00\x00\x00\x00\x00\x00\xf8\x7f\x9c\x75\x00\x88\x3c\xe4\x37\xfe'; } >odd.safetensors
"$dnnc" run two.dnn --load odd.safetensors --steps 0 --no-save --quiet >out 2>err || { cat err; fail "odd values"; }
grep -qx "warning: 'odd.safetensors': tensor 'w': 1 of 2 values are NaN or infinite, the first (NaN) at index 0" err &&
  grep -qx "warning: 'odd.safetensors': tensor 'w': 1 of 2 values are beyond f32 and became infinite, the first (-1e+300) at index 1" err ||
  { cat err; fail "odd values: not said"; }

# Whatever `latest` says, whole checkpoints are found, aloud.
train --steps 8 save_every=4 save=two.ckpt >eight.json || fail "two checkpoints"
echo step-00000002 >two.ckpt/latest
train --load two.ckpt --steps 0 --no-save >newest.json 2>err || { cat err; fail "latest is missing"; }
[ "$(cat err)" = "warning: 'two.ckpt/latest' names step 2, which is not there
warning: taking 'two.ckpt/step-00000008'" ] || { cat err; fail "latest is missing: said otherwise"; }
[ "$(hash_of newest.json)" = "$(hash_of eight.json)" ] || fail "not the newest"

# Lists end after 20 lines, with the number of all.
deep() { # layers width
  echo 'dim B = 2, C = 4'
  echo 'layer f(x) { param w: [C, D:C] = eye; return dot(x, w, C)[D -> C] }'
  echo "net n(x: [B, C]) { repeat i in $1 { x = f(x) }; return x }"
  echo 'data d { x: [B, C] = synthetic() }'
  echo 'train { loss = mse(n(d.x), d.x); optimizer = sgd(lr = 0.1); steps = 1; save = "deep.ckpt" }'
}
deep 3 >few.dnn
deep 40 >many.dnn
"$dnnc" run few.dnn --quiet >log 2>&1 || { cat log; fail "few.dnn"; }
"$dnnc" run many.dnn --quiet --load deep.ckpt >log 2>&1
[ $? = 1 ] || { cat log; fail "37 parameters are missing: exit code"; }
[ "$(grep -c '^missing: ' log)" = 20 ] || { cat log; fail "37 are missing: lines"; }
grep -qx '... and 17 more, 37 in all' log || { cat log; fail "37 are missing: count"; }
exit 0

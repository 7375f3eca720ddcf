#!/bin/bash
# Stopped and resumed equals uninterrupted, bit for bit; so does killed and
# resumed from the last complete checkpoint.
. "$(dirname "$0")/lib.sh"
quick_kernels
ranks=1
has_mpi && ranks=2
run() { # folder, arguments: trains there and prints the parameters' hash
  mkdir -p "$1"
  (cd "$1" && shift && "$dnnc" run "$root/models/mlp.dnn" --ranks $ranks --json \
    --data "$root" epochs=1 save_every=10 save=m.ckpt "$@") \
    >"$1.json" 2>"$1.err"
}
hash_of() { grep -o '"parameters_sha256":\["[0-9a-f]*' "$1.json" | tail -n 1; }

run whole --steps 40 || { cat whole.err; fail "uninterrupted run"; }
[ -n "$(hash_of whole)" ] || fail "no hash"
run parts --steps 17 || fail "first part"
run parts --steps 40 --resume || { cat parts.err; fail "second part"; }
[ "$(hash_of whole)" = "$(hash_of parts)" ] || fail "resumed differs"

run killed --steps 25 || fail "run to be damaged"
newest=$(cat killed/m.ckpt/latest)
file=$(ls killed/m.ckpt/"$newest"/*.safetensors | head -n 1)
size=$(stat -c %s "$file")
truncate -s $((size / 2)) "$file"
run killed --steps 40 --resume || { cat killed.err; fail "resume after damage"; }
grep -q "$newest" killed.err || fail "the damaged checkpoint is not named"
[ "$(hash_of whole)" = "$(hash_of killed)" ] || fail "resumed from older differs"

# Another seed than that of the checkpoint: said, and only where it is asked for.
run seeds --steps 2 || fail "a run to be resumed"
run seeds --steps 4 --resume seed=5 && fail "another seed of the model"
grep -q "trained with seed 1; give --seed 1" seeds.err || { cat seeds.err; fail "another seed of the model"; }
run seeds --steps 4 --resume --seed 5 || { cat seeds.err; fail "another seed"; }
[ "$(grep -c "warning: the checkpoint was trained with seed 1; .* continue with 5" seeds.err)" = 1 ] ||
  { cat seeds.err; fail "another seed is not said once"; }

# Data that are not what the checkpoint was trained on: an error that names the
# file, its old and its new size; --data-changed goes on.
cat >rows.dnn <<'END'
dim B = 4, P = 2
net f(x: [B, P]) -> [B] {
  param w: [P] = normal(1)
  return dot(x, w, P)
}
data set {
  x: [B, P] = csv("rows.csv", 0..1)
  y: [B]    = csv("rows.csv", 2)
}
train { loss = mse(f(set.x), set.y); optimizer = sgd(lr = 0.01); epochs = 2; save = "rows.ckpt" }
END
rows() { for i in $(seq 1000 $((999 + $1))); do echo "0.$i,2,3"; done >rows.csv; }
rows 400
"$dnnc" build rows.dnn -o rows.bundle --quiet || fail "build of rows"
resume() { # expected exit, expected words on standard error, arguments
  local code
  rows.bundle/run --json --resume --no-save "${@:3}" >out 2>err
  code=$?
  [ $code = "$1" ] || { cat err; fail "data: exit $code, not $1: $2"; }
  [ -z "$2" ] || grep -qF -- "$2" err || { cat err; fail "data: said something else than: $2"; }
}
rows.bundle/run --json --steps 150 >out || fail "a run over rows"
grep -aq '"data:rows.csv":"4400 [0-9a-f]*"' rows.ckpt/step-*/*.safetensors || fail "no data in the checkpoint"
resume 0 "" --steps 151
[ "$(field loss out)" ] || fail "no loss"
rows 300
resume 1 "error: data file 'rows.csv' is not what the checkpoint was trained on: it had 4400 bytes and has 3300"
[ ! -s out ] || fail "it trained on other data"
grep -qx "help: --data-changed resumes with the data as it is now" err || { cat err; fail "data: no help"; }
resume 0 "warning: data file 'rows.csv' is not what the checkpoint was trained on: it had 4400 bytes and has 3300" --data-changed --steps 150
# No step, no loss; a schedule that ends before the checkpoint is a mistake.
resume 0 "note: nothing is left to train: step 150 is the last" --data-changed
! grep -q '"loss"' out || fail "a loss without a step"
rows 100
resume 1 "nothing is left to train: the checkpoint is at step 150, and the schedule ends at step 50" --data-changed
[ ! -s out ] || fail "a result without a step"
rows 400
resume 1 "nothing is left to train: the checkpoint is at step 150, and --steps ends at step 20" --steps 20
sed -i '399s/2,3/2,4/' rows.csv
resume 1 "it has the same size (4400 bytes), but other content"
# Equal bytes elsewhere and under another name are the same data.
rows 400
mkdir elsewhere && mv rows.csv elsewhere/
resume 0 "" --data elsewhere --steps 151
mv elsewhere/rows.csv other.csv
"$dnnc" run rows.dnn 'set.x=csv("other.csv", 0..1)' 'set.y=csv("other.csv", 2)' --resume --no-save --steps 151 >out 2>err ||
  { cat err; fail "data under another name"; }
"$dnnc" run rows.dnn 'set.x=csv("other.csv", 0..1)' 'set.y=csv("other.csv", 2)' --data-changed --steps 1 >out 2>err &&
  fail "--data-changed without --resume"
gzip -c other.csv >packed.csv.gz
"$dnnc" run rows.dnn 'set.x=csv("packed.csv.gz", 0..1)' 'set.y=csv("packed.csv.gz", 2)' --quiet --steps 1 save=packed.ckpt >out 2>err ||
  { cat err; fail "a packed file"; }
grep -aq "\"data:packed.csv.gz\":\"$(stat -c %s packed.csv.gz) " packed.ckpt/step-*/*.safetensors || fail "not the file on disk"

# Another optimizer, more or less of its state, and another model: errors that name
# the difference, although an older checkpoint would do; nothing is stepped back.
cat >own.dnn <<'END'
dim B = 4, P = 2, Q = 3
net f(x: [B, P]) -> [B, Q] {
  param w: [P, Q] = normal(1)
  return dot(x, w, P)
}
data set { x: [B, P] = synthetic() }
train { loss = mse(f(set.x), 0 * f(set.x)); optimizer = adam(lr = 0.01); steps = 8; save = "own.ckpt"; save_every = 2 }
END
sed 's/adam(lr = 0.01)/sgd(lr = 0.01)/; s/steps = 8/steps = 10/' own.dnn >sgd.dnn
sed 's/P, Q\] = normal/Q, P] = normal/; s/steps = 8/steps = 10/' own.dnn >turned.dnn
differs() { # MESSAGE LINE COMMAND...
  local message=$1 line=$2
  shift 2
  "$dnnc" "$@" --quiet >out 2>err
  [ $? = 1 ] || { cat err; fail "$*: not exit 1"; }
  grep -qF "$message" err || { cat err; fail "$*: message"; }
  grep -qF "$line" err || { cat err; fail "$*: the difference"; }
  ! grep -q 'skipped a checkpoint' err || { cat err; fail "$*: looked at another one"; }
  [ "$(cat own.ckpt/latest)" = "$newest" ] || fail "$*: latest has moved"
}
help="help: --load PATH takes the parameters alone and starts anew"
"$dnnc" run own.dnn --quiet >out 2>err || { cat err; fail "a run with adam"; }
newest=step-00000008
differs "error: 'own.ckpt/$newest' has the state of another optimizer: 0 missing, 2 extra" \
  "extra:    adam.m/w f32[2, 3]" run sgd.dnn --resume
grep -qx "$help" err || { cat err; fail "another optimizer: no help"; }
"$dnnc" run sgd.dnn --load own.ckpt --no-save --quiet >out 2>err || { cat err; fail "--load into another optimizer"; }
"$dnnc" run sgd.dnn --load own.ckpt save=other.ckpt --quiet >out 2>err || { cat err; fail "a run with sgd"; }
cp -r other.ckpt/step-00000010 own.ckpt/ && cp other.ckpt/latest own.ckpt/
newest=step-00000010
differs "error: 'own.ckpt/$newest' has the state of another optimizer: 2 missing, 0 extra" \
  "missing:  adam.v/w f32[2, 3]" run own.dnn --resume steps=12
rm -r own.ckpt/step-00000010 other.ckpt
"$dnnc" run turned.dnn save=other.ckpt --quiet >out 2>err || { cat err; fail "a run of another model"; }
cp -r other.ckpt/step-00000010 own.ckpt/ && cp other.ckpt/latest own.ckpt/
for words in "run own.dnn --resume steps=12" "run own.dnn --load own.ckpt --no-save" \
  "predict own.dnn --load own.ckpt -o p.npy" "eval own.dnn --load own.ckpt set.eval=0.5"; do
  # shellcheck disable=SC2086
  differs "error: 'own.ckpt/$newest' does not match the model: 0 missing, 0 extra, " \
    "differs:  w is f32[3, 2], the model has f32[2, 3]" $words
done
# One that is torn still has an older one in its place.
truncate -s -4 own.ckpt/$newest/*.safetensors
"$dnnc" run own.dnn --resume steps=12 --no-save --quiet >out 2>err || { cat err; fail "a torn checkpoint"; }
grep -qx "warning: taking 'own.ckpt/step-00000008'" err || { cat err; fail "the older one"; }
exit 0

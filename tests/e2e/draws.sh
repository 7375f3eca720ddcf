#!/bin/bash
# Random numbers of a net have the same bits under every plan: states that keep what
# normal, bernoulli and uniform gave are compared after 5 steps, under 20 plans. The
# numbers of an evaluation and of a prediction depend on seed and record alone; a p that
# is no probability ends the run where it is.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
cp "$root/tests/e2e/draws.dnn" .
cat >digest.py <<'END'
"""Prints the digests of the states of the newest checkpoint in a folder."""
import glob, hashlib, json, struct, sys
kept = {}
for path in glob.glob(sys.argv[1] + "/step-00000005/*.safetensors"):
    with open(path, "rb") as file:
        data = file.read()
    n, = struct.unpack("<Q", data[:8])
    for name, tensor in json.loads(data[8:8 + n]).items():
        if name in ("codes", "coins", "turns", "rest"):
            begin, end = (8 + n + at for at in tensor["data_offsets"])
            kept[name] = hashlib.sha256(data[begin:end]).hexdigest()
assert len(kept) == 4, sorted(kept)
print(*(kept[name] for name in sorted(kept)))
END

# digest ARGUMENTS...: trains and prints the digests.
digest() {
  rm -rf f.ckpt
  "$dnnc" run draws.dnn --quick --quiet "$@" >out 2>err </dev/null || { cat err >&2; return 1; }
  python3 digest.py f.ckpt
}
plans=0
same() {
  local is
  is=$(digest "$@") || fail "$* does not train"
  [ "$is" = "$wanted" ] || fail "other numbers with $*"
  plans=$((plans + 1))
}
# plan MESH LINE...
plan() {
  printf '%s\nplan {\n' "$1" >draws.plan
  printf '  %s\n' "${@:2}" >>draws.plan
  echo '}' >>draws.plan
  same --plan draws.plan
}
wanted=$(digest) || fail "draws.dnn does not train"
[ "$(digest --seed 2)" != "$wanted" ] || fail "another seed gives the same numbers"
same --microbatches 2
same --microbatches 3
same --microbatches 12
same -O0
plan 'mesh { a = 1 }' 'remat h' 'remat code'
plan 'mesh { a = 1 }' 'microbatches = 4' 'remat code'
if has_mpi; then
  same --ranks 2
  same --ranks 4
  same --ranks 2 --microbatches 3
  plan 'mesh { t = 2 }' 'shard H over t'
  plan 'mesh { t = 2 }' 'shard C over t'
  plan 'mesh { t = 2 }' 'shard T over t' 'microbatches = 2'
  plan 'mesh { d = 2; t = 2 }' 'shard B over d' 'shard H over t'
  plan 'mesh { d = 2; t = 2 }' 'shard B over d' 'shard H, T over t' 'microbatches = 2' 'remat code'
  plan 'mesh { d = 2; t = 2 }' 'shard B over d' 'shard C over t'
  plan 'mesh { d = 2; t = 2 }' 'shard B over (d, t)' 'shard H over none'
  plan 'mesh { d = 2 }' 'zero = 1'
  plan 'mesh { d = 2 }' 'zero = 2' 'microbatches = 2'
  plan 'mesh { d = 2 }' 'zero = 3'
  plan 'mesh { d = 4 }' 'zero = 3' 'microbatches = 3' 'remat h'
  plan '' 'schedule = 1f1b' 'microbatches = 4' 'stage 0: w1 on 0' 'stage 1: w2 on 1'
  plan '' 'schedule = gpipe' 'microbatches = 2' 'stage 0: w1 on 0' 'stage 1: w2 on 1'
  [ $plans -ge 20 ] || fail "$plans plans only"
fi
echo "$plans plans"

# Evaluation and prediction.
cat >eval.dnn <<'END'
dim B = 8, C = 4
net f(x: [B, C]) -> [B, C] {
  param w: [C] = ones
  return x * w + normal(x)
}
data d { x: [B, C] = synthetic(records = 64); eval = 20 }
train {
  loss      = mean(pow(f(d.x), 2))
  optimizer = sgd(lr = 0)
  steps     = 3
  eval_every = 1
  save      = "e.ckpt"
}
END
"$dnnc" run eval.dnn --quick --quiet --json >run.json 2>err || { cat err; fail "eval.dnn"; }
[ "$(grep -o '"validation_loss":[0-9][^,}]*' run.json | sort -u | wc -l)" = 1 ] ||
  fail "evaluations with one set of parameters differ"
"$dnnc" eval eval.dnn --quick --load e.ckpt --json --quiet >eval.json || fail "eval"
[ "$(field validation_loss eval.json)" = "$(field validation_loss run.json)" ] || fail "eval has other numbers"
predict() { "$dnnc" predict eval.dnn --quick --load e.ckpt --quiet "$@" || fail "predict $*"; }
predict -o one.csv
predict -o again.csv
cmp one.csv again.csv || fail "a prediction differs from itself"
predict -o seed.csv --seed 5
cmp -s one.csv seed.csv && fail "a prediction ignores its seed"
predict -o noise.csv --value normal --count 20
[ "$(sort -u noise.csv | wc -l)" = 20 ] || fail "records have the same numbers"
if has_mpi; then
  predict -o ranks.csv --ranks 2
  cmp one.csv ranks.csv || fail "two ranks predict other numbers"
fi

predict -o batch.csv --value normal
cmp batch.csv <(head -n 8 noise.csv) || fail "a value without data has no batch of records"
predict -o few.csv --count 3
cmp few.csv <(head -n 3 one.csv) || fail "--count 3 writes other records"

# No probability.
cat >coin.dnn <<'END'
dim B = 8, C = 4
net f(x: [B, C]) -> [B, C] {
  param w: [C] = ones
  p = 3 * w
  return x * bernoulli(0 * x + p)
}
data d { x: [B, C] = synthetic(records = 64) }
train {
  loss      = mean(f(d.x))
  optimizer = sgd(lr = 0.1)
  steps     = 3
}
END
"$dnnc" run coin.dnn --quick --quiet --no-save >out 2>err && fail "p = 3 is taken for a probability"
grep -q "bernoulli" err || { cat err; fail "the message does not name the operator"; }

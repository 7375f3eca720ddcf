#!/bin/bash
# Stopped and resumed equals uninterrupted, bit for bit; so does killed and
# resumed from the last whole checkpoint.
. "$(dirname "$0")/lib.sh"
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
[ "$(grep -c "warning: the checkpoint was trained with seed 1; .* go on with 5" seeds.err)" = 1 ] ||
  { cat seeds.err; fail "another seed is not said once"; }

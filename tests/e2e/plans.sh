#!/bin/bash
# A plan file does what it says: data parallelism written down gives the bytes
# that --ranks gives; micro-batches, two axes and a model's own blocks agree
# with one rank; a memory limit that cannot hold is exit 2, in its place.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
train() { # name, then the rest of the command line
  local name=$1
  shift
  "$dnnc" run "$@" --steps 4 --json --no-save --data "$root" \
    eval_every=0 eval_batches=1 >"$name.json" 2>"$name.err" ||
    { cat "$name.err"; fail "$name"; }
  grep '"step"' "$name.json" | grep -o '"loss":[^,}]*' >"$name.losses"
  [ "$(wc -l <"$name.losses")" = 4 ] || fail "$name: not 4 losses"
}
agree() { # name name relative
  worst=$(paste -d' ' <(sed 's/.*://' "$1.losses") <(sed 's/.*://' "$2.losses") |
    awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > w) w = d }
         END { printf "%.3g", w }')
  echo "$1 against $2: worst $worst"
  awk -v w="$worst" -v r="$3" 'BEGIN { exit !(w <= r) }' || fail "$1 and $2 differ"
}
model=$root/models/chargpt.dnn

printf 'mesh { data = 2 }\nplan chargpt {\n  shard B over data\n}\n' >two.plan
train ranks "$model" --ranks 2
train file "$model" --plan two.plan
cmp ranks.losses file.losses || fail "the plan file is not --ranks 2"
"$dnnc" ir "$model" --plan two.plan --after=partition >file.ir
"$dnnc" ir "$model" --ranks 2 --after=partition >ranks.ir
cmp file.ir ranks.ir || fail "their graphs differ"

train one "$model"
agree one file 1e-5
printf 'mesh { node = 2; data = 1 }\nplan { microbatches = 2 }\n' >micro.plan
train micro "$model" --plan micro.plan
agree one micro 1e-5
printf 'mesh { node = 2; data = 2 }\nplan { shard B over (node, data) }\n' >four.plan
train four "$model" --plan four.plan
agree one four 1e-5
"$dnnc" ir "$model" --plan four.plan --after=partition | head -n 1 |
  grep -q 'mesh(node = 2, data = 2)' || fail "the mesh of four ranks"


# The model's own blocks say so, too.
{ cat "$model"; cat two.plan; } >own.dnn
train own own.dnn
cmp own.losses file.losses || fail "blocks of the model are not its plan file"

printf 'mesh { data = 2 }\nplan {\n  memory = 1MB\n}\n' >small.plan
"$dnnc" build "$model" --plan small.plan -o out.bundle 2>err
[ $? = 2 ] || fail "memory: not exit 2"
grep -q '^small.plan:3:3: error: a rank needs' err || { cat err; fail "memory"; }
[ ! -e out.bundle ] || fail "memory: something was written"

# A carry without the batch dim is one value for all micro-batches; what reads it
# and is read by them runs again for each.
cat >between.dnn <<'END'
dim B = 4, T = 6, C = 3
net f(x: [B, T, C]) -> [B, T, C] {
  param a: [C] = ones
  y, n = scan T (h: [B, C] = 0, k: [] = 0) {
    h = 0.5 * h + a * x
    k = k + 1
    return (h, k)
  }
  return y + cumsum(n, T)
}
data set { x: [B, T, C] = synthetic(records = 32) }
train { loss = mse(f(set.x), set.x); optimizer = sgd(lr = 0.1); steps = 4 }
END
train between between.dnn
train between_two between.dnn --microbatches 2
agree between between_two 1e-5
"$dnnc" verify between.dnn --ranks 2 --microbatches 2 >words || { cat words; fail "between"; }

# A state of a generic layer is cut where its dim stands for the batch.
cat >generic.dnn <<'END'
dim B = 4, C = 3
layer memory[N](x: [N, C]) -> [N, C] {
  state h: [N, C]
  y = tanh(x + h)
  h = y
  return y
}
net f(x: [B, C]) -> [B, C] {
  param w: [C] = ones
  return memory[B](x * w)
}
data set { x: [B, C] = synthetic(records = 32) }
train { loss = mse(f(set.x), set.x); optimizer = sgd(lr = 0.1); steps = 4 }
END
train generic generic.dnn
train generic_two generic.dnn --ranks 2 --microbatches 2
agree generic generic_two 1e-5
exit 0

#!/bin/bash
# The order of dims in the files of `dnnc predict`: that of the declared result of
# a net or layer, else that of the operator; the same in each format, on ranks
# that hold shards, and for a list.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
cat >m.dnn <<'EOF'
dim B = 2, Y = 4, X = 4, Z = 4, C = 2, O = 2

layer turned(x: [B, Y, X]) -> [B, X, Y] { return 2 * x }
layer last[P -> Q](x: [..., P]) -> [..., Q] { return 2 * x[P -> Q] }

net t(x: [B, Y, X]) -> [B, X, Y] { return 2 * x }
net late(x: [B, Y, X]) -> [X, Y, B] { return 2 * x }
net rest(x: [B, Y, X]) -> [B, X, ...] { return 2 * x }
net none(x: [B, Y, X]) { return turned(x) }
net generic(x: [B, Y, X]) { return last[Y -> Z](x) }
net inner(x: [B, Y, X]) -> [B, Y, X] {
  h = turned(x)
  return h
}
net same(x: [B, Y, X]) { return 2 * x }
net half(x: [B, Y, X]) -> bf16[B, X, Y] { return cast(2 * x, bf16) }
net pair(x: [B, Y, X]) -> ([B, X, Y], [B, Y, X]) { return (2 * x, 2 * x) }
net sharded(x: [B, Y, X]) -> [B, X, Y] {
  param w: [Y] = ones
  return 2 * w * x
}
net image(x: [B, C, Y, X]) -> [B, O, Y, X] {
  one = 0 * x[B = 0, C = 0, Y = 0..0, X = 0..0] + 1
  return conv(x, one * cast(iota(x, C) == iota(x[C -> O], O), f32), C, (Y, X))
}
EOF
printf '\010\000\000\000\000\000\000\000{}      ' >none.safetensors
printf '%s\n' "$(seq -s, 0 15)" "$(seq -s, 16 31)" >x.csv
printf '%s\n' "$(seq -s, 0 31)" "$(seq -s, 32 63)" >image.csv
# Twice x, row by row, as it is and with Y and X exchanged.
awk -F, -v OFS=, '{ for (i = 1; i <= NF; i++) $i *= 2; print }' x.csv >stored
awk -F, '{ for (x = 0; x < 4; x++) for (y = 0; y < 4; y++)
    printf "%s%d", x + y ? "," : "", 2 * $(4 * y + x + 1); print "" }' x.csv >declared
predict() { "$dnnc" predict m.dnn --load none.safetensors --quick --quiet --input x=x.csv "$@" >said 2>&1 ||
  { cat said; fail "predict $*"; }; }
# rows FILE [BYTES]: the last 32 numbers of a file of floats.
rows() {
  tail -c $((32 * ${2:-4})) "$1" | od -An -v -w$((16 * ${2:-4})) -t f${2:-4} | sed 's/^ *//; s/  */,/g'
}
for net in t late rest none generic; do
  predict --net $net -o $net.csv
  cmp -s $net.csv declared || { cat $net.csv; fail "'$net' is not in the declared order"; }
done
for net in inner same; do
  predict --net $net -o $net.csv
  cmp -s $net.csv stored || { cat $net.csv; fail "'$net' is in another order"; }
done
for value in h turned; do # a value keeps the order of the layer that gave it
  predict --net inner --value $value -o v.csv
  cmp -s v.csv declared || { cat v.csv; fail "'$value' is not in the declared order"; }
done
predict --net inner --value turned.mul -o v.csv
cmp -s v.csv stored || fail "an operator is in another order than its own"
predict --net t -o t.npy
predict --net t -o t.safetensors
predict --net half -o half.csv
for file in t.npy t.safetensors; do
  rows $file | cmp -s - declared || fail "$file is not in the declared order"
done
cmp -s half.csv declared || fail "16-bit floats are not in the declared order"
predict --net pair -o pair.safetensors
tail -c 256 pair.safetensors | head -c 128 >first && rows first | cmp -s - declared || fail "pair[0]"
rows pair.safetensors | cmp -s - stored || fail "pair[1]"

# A convolution contracts C and appends O; the net declares O before Y and X.
sed 's/x=x.csv/x=image.csv/' <(declare -f predict) >image.bash && . ./image.bash
predict --net image -o image.out.csv
cmp -s image.out.csv image.csv || fail "an image is not in the declared order"
predict --net image --value conv -o conv.npy
grep -aq "'shape': (2,4,4,2)" conv.npy || fail "a convolution is not in the order of its operator"

if has_mpi; then
  cat >y.plan <<'EOF'
mesh { m = 2 }
plan { shard Y over m }
EOF
  cat >train.dnn <<'EOF'
import "m.dnn"
data d { x: [B, Y, X] = csv("x.csv", 0..15) }
train { loss = mean(sharded(d.x)); optimizer = sgd(lr = 0); steps = 1; save = "w.ckpt" }
EOF
  "$dnnc" run train.dnn --quiet --quick || fail "training"
  for options in '' '--plan y.plan' '--ranks 2'; do
    "$dnnc" predict train.dnn --load w.ckpt --quick --quiet -o p.csv $options || fail "predict $options"
    cmp -s p.csv declared || { cat p.csv; fail "not in the declared order: $options"; }
  done
fi

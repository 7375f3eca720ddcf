#!/bin/bash
# A NaN among the parameters ends the run with exit 1 and saves nothing, through
# every operator that could lose it: relu, extrema of two values and of a dim,
# maxpool, attention; at -O0 and -O2.
. "$(dirname "$0")/lib.sh"

for i in 1 2 3 4 5 6 7 8; do
  echo "$((i % 3)),$((i % 5)),$((i % 7)),$((i % 2)),$((i % 4))"
done >rows.csv
# A file of the parameter w [C:4] with these bytes.
weights() { # NAME BYTES
  local header='{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
  { printf '\067\0\0\0\0\0\0\0%s' "$header"; printf "$2"; } >"$1.safetensors"
  [ ${#header} = 55 ] || fail "the header's length"
}
one='\0\0\200\077'
weights good "$one$one$one$one"
weights bad "$one\0\0\300\177$one$one"

run() { # EXPRESSION FILE ARGUMENTS...
  cat >m.dnn <<END
dim B = 8, C = 4
net f(x: [B, C]) -> [B] {
  param w: [C] = ones
  z = x * w
  return $1
}
data d { x: [B, C] = csv("rows.csv", 0..3); y: [B] = csv("rows.csv", 4) }
train { loss = mse(f(d.x), d.y); optimizer = sgd(lr = 0.01); steps = 2; save = "m.ckpt" }
END
  rm -rf m.ckpt
  "$dnnc" run m.dnn --load "$2.safetensors" --quiet "${@:3}" >out 2>&1
}
for value in "sum(relu(z), C)" "sum(maximum(z, 0), C)" "sum(minimum(0, z), C)" \
  "sum(minimum(maximum(z, -1), 1), C)" "max(z, C)" "min(z, C)" \
  "sum(maxpool(z, C, 3, 1, 1), C)" "sum(softmax(z, C) * x, C)" \
  "sum(relu(maxpool(abs(z), C, 2)), C)"; do
  for level in 0 2; do
    run "$value" good -O$level || { cat out; fail "$value -O$level without a NaN"; }
    [ -e m.ckpt/latest ] || fail "$value -O$level: nothing saved without a NaN"
    run "$value" bad -O$level
    [ $? = 1 ] || { cat out; fail "$value -O$level: it goes on"; }
    grep -q "error: step 1: the loss is not finite" out || { cat out; fail "$value -O$level: the message"; }
    [ ! -e m.ckpt/latest ] || fail "$value -O$level: it is saved"
  done
done

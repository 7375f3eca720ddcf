#!/bin/bash
# What values of data mean in a run: integers are whole and in range, streams
# go on from lane to lane, indices out of range are clamped or end the run.
. "$(dirname "$0")/lib.sh"
refused() { # words on standard error, arguments of a run
  "$dnnc" run m.dnn --no-save --quiet "${@:2}" 2>err && fail "passed: $1"
  grep -q -- "$1" err || { cat err; fail "said something else than: $1"; }
}

# Integers are whole and in range; a stream of any source goes on from lane to
# lane; an epoch is all whole windows.
cat >m.dnn <<'MODEL'
dim B = 2, T = 3
net f(x: i32[B, T], y: i32[B, T]) -> [] {
  param w: [] = ones
  return w * sum(x[B = 1, T = 0] * 1000 + y[B = 1, T = 2])
}
data d {
  x: i32[B, T] = csv("rows.csv", 0)
  y: i32[B, T] = next(x)
  order = sequential
}
train {
  loss      = f(d.x, d.y)
  optimizer = sgd(lr = 0)
  epochs    = 2
}
MODEL
seq 0 12 >rows.csv
"$dnnc" run m.dnn --no-save --json >out 2>err || { cat err; fail "a stream of rows"; }
got=$(sed -n 's/.*"step":\([0-9]*\),"loss":\([0-9]*\),.*/\1 \2/p' out | tr '\n' ',')
[ "$got" = "1 6009,2 9012,3 6009,4 9012," ] || fail "lanes and epochs: $got"
sed -i '5s/.*/4.5/' rows.csv
refused "'rows.csv', line 5, column 0: 'd.x' is i32, not 4.5"
sed -i 's/csv("rows.csv", 0)/bytes("text")/; s/i32/i8/g' m.dnn
printf 'no \377 is an i8, is it' >text
refused "is i8, but value 3 of 'text' is 255"

# An index out of range is clamped; with --checked it ends the run.
cat >m.dnn <<'MODEL'
dim B = 4, T = 8, C = 4, V = 100
net f(x: i32[B, T]) -> [B, T, V] {
  param e: [U:V, C] = normal(0.1)
  param w: [C, V] = normal(0.1)
  return dot(gather(e, x, U), w, C)
}
data d {
  x: i32[B, T] = synthetic(V)
  y: i32[B, T] = synthetic(V + 1)
}
train {
  loss      = cross_entropy(f(d.x), d.y, V, ignore = 100)
  optimizer = sgd(lr = 0.1)
  steps     = 2
}
MODEL
out() { # what is out of range, words, arguments
  "$dnnc" run m.dnn --no-save --quiet "${@:3}" 2>err || fail "$1: clamped"
  refused "step 1: the loss is not finite.*'$2'" --checked "${@:3}"
  grep -q 'out of range' err || { cat err; fail "$1"; }
}
"$dnnc" run m.dnn --no-save --quiet --checked || fail "all in range"
out "an index" "gather" "d.x=synthetic(300)"
out "a label" "loss.cross_entropy" "d.y=synthetic(300)"

# Integers read from a table of integers are no reals, but tell it too.
sed -i 's/^  param e:/  next = gather(iota(x[T -> U], U) + 1, x, U)\n  param e:/; s/gather(e, x, U)/gather(e, next, U)/' m.dnn
sed -i 's/i32\[B, T\] = synthetic(V)/i32[B, T] = synthetic(T)/' m.dnn
"$dnnc" run m.dnn --no-save --quiet --checked || fail "all in range of integers"
out "an index into integers" "gather.0." "d.x=synthetic(300)"

# Arrays are read as text is: the same rows in any of them, the same run.
npy() { # file, descr, shape; the numbers come on standard input
  printf '\223NUMPY\1\0\166\0%-117s\n' \
    "{'descr': '$2', 'fortran_order': False, 'shape': ($3), }" >"$1"
  cat >>"$1"
}
stored() { # file, dtype, shape, bytes
  local header="{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"x\":{\"dtype\":\"$2\",\"shape\":[$3],\"data_offsets\":[1,$(($4 + 1))]}}"
  printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s." "$header" >"$1"
  cat >>"$1"
}
cat >m.dnn <<'MODEL'
dim B = 4, T = 3, K = 3
net f(x: [B, T]) -> [B, K] {
  param w: [T, K] = normal(0.1)
  return dot(x, w, T)
}
data d {
  x: [B, T] = csv("rows.csv", 0..2)
  y: i32[B] = csv("rows.csv", 3)
  eval = 5
}
train {
  loss      = cross_entropy(f(d.x), d.y, K)
  optimizer = sgd(lr = 0.1)
  steps     = 20
}
MODEL
: >rows.csv; : >halves; : >words; : >labels
for i in $(seq 0 24); do
  a=$((i % 7)) b=$((i * 5 % 11)) c=$((i % 3))
  echo "$a,$b,-$a,$c" >>rows.csv
  for x in $a $b -$a; do
    printf "\\$(printf %o $((x & 255)))\\$(printf %o $((x >> 8 & 255)))" >>halves
  done
  printf "\\$(printf %o $c)\\0\\0\\0\\0\\0\\0\\0" >>words
  printf "\\0\\$(printf %o $c)" >>labels
done
npy x.npy '<i2' '25, 1, 3' <halves
npy y.npy '<i8' '25,' <words
npy y2.npy '>u2' '25,' <labels
stored x.safetensors I16 25,3 150 <halves
stored y.safetensors I64 25 200 <words
numbers() { # words, arguments: those of the last line of a run
  "$dnnc" run m.dnn --no-save --json "${@:2}" >out 2>err || { cat err; fail "$1"; }
  echo "$(field validation_loss out) $(field parameters_sha256 out)"
}
want=$(numbers "rows of text")
[ ${#want} -gt 70 ] || fail "no numbers: $want"
for sources in 'npy("x.npy") npy("y.npy")' 'npy("x.npy") npy("y2.npy")' \
  'safetensors("x.safetensors","x") safetensors("y.safetensors","x")' \
  'npy("x.npy",eval="x.npy") npy("y.npy",eval="y.npy")'; do
  set -- $sources
  [ "$1" = 'npy("x.npy",eval="x.npy")' ] && set -- "$@" d.eval=0
  got=$(numbers "$sources" "d.x=$1" "d.y=$2" "${@:3}")
  [ "${3:-}" = d.eval=0 ] && { [ "$got" != "$want" ] || fail "another evaluation"; continue; }
  [ "$got" = "$want" ] || fail "$sources: $got, not $want"
done
refused "'x.npy' has records of 3 values, but 'd.x' takes 4" 'd.x=npy("x.npy")' T=4
refused "'x.safetensors' has no tensor 'y'; it has 'a', 'x'" 'd.x=safetensors("x.safetensors","y")'
printf '\0\0\0\0\0\0\0\77' | npy half.npy '<f4' '2,' # 0 and 0.5
refused "'d.y' is i32, but value 1 of 'half.npy' is 0.5" \
  'd.y=npy("half.npy")' 'd.x=synthetic(records=2)' B=1 d.eval=0

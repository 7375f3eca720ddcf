#!/bin/bash
# A run checks the values of data: integers must be integers in the range of
# their uses, streams continue from row to row of the batch, arrays are read
# like text.
. "$(dirname "$0")/lib.sh"
quick_kernels
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
refused "error: 'text', value 3: 'd.[xy]' is i8, not 255"

# The data that operators use is checked when it is read; a computed index is
# clamped, and ends the run with --checked.
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
"$dnnc" run m.dnn --no-save --quiet --checked || fail "all in range"
refused "^error: 'd.x', record [0-9]*, element [0-7]: 'd.x' is [12][0-9][0-9], but 'gather' takes 0 to 99$" \
  "d.x=synthetic(300)"
refused "^error: 'd.y', record [0-9]*, element [0-7]: 'd.y' is [12][0-9][0-9], but 'cross_entropy' takes 0 to 99, or 100, which it ignores$" \
  "d.y=synthetic(300)"
[ "$(wc -l <err)" = 1 ] || { cat err; fail "more than the message"; }
cp m.dnn plain.dnn
out() { # what is out of range, words, arguments
  "$dnnc" run m.dnn --no-save --quiet "${@:3}" 2>err || { cat err; fail "$1: clamped"; }
  refused "step 1: the loss is not finite.*'$2'" --checked "${@:3}"
  grep -q 'out of range' err || { cat err; fail "$1"; }
}
sed -i 's/gather(e, x, U)/gather(e, x * 3, U)/' m.dnn
out "an index" "gather"
sed 's/d.y, V, ignore/d.y * 2, V, ignore/' plain.dnn >m.dnn
out "a label" "loss.cross_entropy"

# Integers read from a table of integers are no reals, but tell it too.
sed 's/^  param e:/  next = gather(iota(x[T -> U], U) + 1, x * 2, U)\n  param e:/; s/gather(e, x, U)/gather(e, next, U)/
  s/i32\[B, T\] = synthetic(V)/i32[B, T] = synthetic(T)/' plain.dnn >m.dnn
"$dnnc" run m.dnn --no-save --quiet --checked d.x='synthetic(T / 2)' ||
  fail "all in range of integers"
out "an index into integers" "gather.0."

# Limits go with what is read: through renames, slices, scans and layers, to
# the elements that are used, of training and of evaluation, of every source.
cat >m.dnn <<'MODEL'
dim B = 4, T = 6, C = 4, V = 10, K = 3
layer embed(t: [V, C], i) -> [B, C] { return gather(t, i[P = 0], V) }
net f(x: i32[B, T], z: i32[B, P:2, Q:3]) -> [B, C] {
  param e: [V, C] = normal(0.1)
  first = embed(e, z[Q = 1..2][Q -> R][P -> Q][R -> P][Q = 1])
  h = scan T (h: [B, C] = 0) {
    h = h + gather(e, x, V)
    return h
  }
  return first + h[T = 0]
}
data d {
  x: i32[B, T]        = csv("rows.csv", 0..5, header = 1)
  z: i32[B, P:2, Q:3] = csv("rows.csv", 0..5, header = 1)
  y: i32[B]           = csv("rows.csv", 6, header = 1)
  eval = 4
}
train {
  loss      = cross_entropy(linear_of(f(d.x, d.z)), d.y, K, ignore = -1)
  optimizer = sgd(lr = 0.1)
  steps     = 3
}
layer linear_of(x: [B, C]) -> [B, K] { return dot(x, one_hot(iota(x, C) % 3, K, 3), C) }
MODEL
{ echo a,b,c,d,e,f,g; for i in $(seq 0 11); do echo "$i,1,2,3,4,$((i % 10)),$((i % 4 - 1))"; done; } >rows.csv
sed -i 's/^1[01],/9,/' rows.csv
"$dnnc" run m.dnn --no-save --quiet || fail "rows in range"
cp rows.csv good.csv
broken() { # line, column from 0, value, words
  awk -F, -v OFS=, -v l="$1" -v c="$2" -v v="$3" 'NR == l { $(c + 1) = v } 1' good.csv >rows.csv
  refused "$4" "${@:5}"
}
broken 5 2 10 "'rows.csv', line 5, column 2: 'd.x' is 10, but 'gather' takes 0 to 9$"
broken 12 6 3 "'rows.csv', line 12, column 6: 'd.y' is 3, but 'cross_entropy' takes 0 to 2, or -1, which it ignores$"
broken 3 6 -2 "column 6: 'd.y' is -2, but"
broken 3 6 nan "'rows.csv', line 3, column 6: 'd.y' is NaN, but data is finite numbers"
broken 3 6 "" "'rows.csv', line 3, column 6: the field is empty"
# Only element 4 of a record of z is an index.
sed -i 's/  x: i32\[B, T\]  .*/  x: i32[B, T] = synthetic(10, records = 12)/' m.dnn
for column in 0 1 2 3 5; do
  awk -F, -v OFS=, -v c=$column 'NR == 7 { $(c + 1) = 77 } 1' good.csv >rows.csv
  "$dnnc" run m.dnn --no-save --quiet || fail "column $column is no index"
done
broken 7 4 77 "line 7, column 4: 'd.z' is 77, but 'gather' takes 0 to 9$"
cp good.csv rows.csv
# A metric of the evaluation has limits as well; streams name the value.
refused "line 2, column 6: 'd.y' is -1, but 'accuracy' takes 0 to 2$" \
  'train.metrics=accuracy(linear_of(f(d.x, d.z)), d.y, K)'
cat >m.dnn <<'MODEL'
dim B = 2, T = 4, V = 128
net f(x: i32[B, T]) -> [B, T, V] {
  param w: [U:128, V] = normal(0.1)
  return gather(w, x, U)
}
data d {
  x: i32[B, T] = bytes("text")
  y: i32[B, T] = next(x)
  order = sequential
  eval = 10
}
train {
  loss      = cross_entropy(f(d.x), d.y, V)
  optimizer = sgd(lr = 0.1)
  steps     = 3
}
MODEL
printf 'a text of forty bytes, and then \351valuation' >text
refused "'text', value 32: 'd.[xy]' is 233, but '[a-z_]*' takes 0 to 127$"
[ "$(wc -l <err)" = 1 ] || { cat err; fail "more than the message"; }
printf 'a \351ext of forty bytes, and then evaluation' >text
refused "'text', value 2: 'd.[xy]' is 233, but '[a-z_]*' takes 0 to 127$"
if has_mpi; then # once, whichever rank has read it
  refused "'text', value 2: 'd.[xy]' is 233" --ranks 2
  [ "$(grep -c 'value 2' err)" = 1 ] || { cat err; fail "twice"; }
  grep -q '^(rank 0' err || { cat err; fail "which rank"; }
fi

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
# Words of a column are classes, and columns have names.
{ echo '"a, first",b,c,kind'
  awk -F, '{ print "\"" $1 "\"," $2 "," $3 ",\"" ($4 == 0 ? "cat" : $4 == 1 ? "a \"\"dog\"\"" : "fish") "\"" }' rows.csv; } >words.csv
printf 'cat\na "dog"\nfish\n' >kinds.txt
sed 's/csv("rows.csv", 0..2)/csv("words.csv", "a, first".."c")/
  s/csv("rows.csv", 3)/csv("words.csv", "kind", classes = "kinds.txt")/' m.dnn >words.dnn
got=$(numbers "words of a file") # of m.dnn
[ "$got" = "$want" ] || fail "m.dnn is another: $got"
cp m.dnn rows.dnn && cp words.dnn m.dnn
got=$(numbers "classes of a file")
[ "$got" = "$want" ] || fail "classes of a file: $got, not $want"
# In another order the words are other classes, which a checkpoint remembers.
"$dnnc" run m.dnn --steps 1 save=words.ckpt --quiet >log 2>&1 || { cat log; fail "words: save"; }
cp kinds.txt kinds && sort -r kinds >kinds.txt
"$dnnc" run m.dnn --steps 2 save=words.ckpt --resume --quiet >log 2>&1
[ $? = 1 ] && grep -q "data file 'kinds.txt' is not what the checkpoint was trained on" log ||
  { cat log; fail "other classes are not seen"; }
cp kinds kinds.txt
sed -i 's/"cat"/"cut"/' words.csv
refused "'words.csv', line 2, column 3: 'cut' is none of the 3 classes of 'd.y'; did you mean 'cat'?"
cp rows.dnn m.dnn
refused "'x.npy' has records of 3 values, but 'd.x' takes 4" 'd.x=npy("x.npy")' T=4
refused "'x.safetensors' has no tensor 'y'; it has 'a', 'x'" 'd.x=safetensors("x.safetensors","y")'
printf '\0\0\0\0\0\0\0\77' | npy half.npy '<f4' '2,' # 0 and 0.5
refused "'half.npy', record 1: 'd.y' is i32, not 0.5" \
  'd.y=npy("half.npy")' 'd.x=synthetic(records=2)' B=1 d.eval=0

# A rank that reads or unpacks data ends within a second of a signal.
cat >m.dnn <<'MODEL'
dim B = 4
net f(x: [B]) -> [B] {
  param w: [] = ones
  return x * w
}
data d { x: [B] = csv("rows.csv.gz", 0) }
train {
  loss      = mse(f(d.x), d.x)
  optimizer = sgd(lr = 0.1)
  steps     = 1
}
MODEL
seq 1 8 | gzip >rows.csv.gz
"$dnnc" build m.dnn --quiet -o b.bundle || fail "a bundle"
yes 1.25 | head -c 500000000 | gzip -1 >rows.csv.gz
./b.bundle/run --no-save >out 2>err &
pid=$!
sleep 1
begin=$(date +%s%N)
kill -TERM $pid 2>/dev/null || { cat out err; fail "too little data"; }
wait $pid
code=$?
ms=$((($(date +%s%N) - begin) / 1000000))
[ $code = 143 ] || { cat err; fail "exit $code at a signal"; }
in_time $ms 1000 || fail "$ms ms after a signal"
grep -q "^error: stopped by a signal while reading 'rows.csv.gz'$" err || { cat err; fail "no word of the signal"; }

# Files that fit a pattern are one stream; the data of a checkpoint has each.
cat >m.dnn <<'MODEL'
dim B = 2, T = 3
net f(x: i32[B, T], y: i32[B, T]) -> [] {
  param w: [] = ones
  return w * sum(x[B = 1, T = 0] * 1000 + y[B = 1, T = 2])
}
data d {
  x: i32[B, T] = csv("rows-*.csv", 0)
  y: i32[B, T] = next(x)
  order = sequential
}
train {
  loss      = f(d.x, d.y)
  optimizer = sgd(lr = 0)
  epochs    = 2
}
MODEL
seq 0 1 >rows-1.csv
seq 2 12 >rows-2.csv
"$dnnc" run m.dnn --json >out 2>err || { cat err; fail "a stream of two files"; }
got=$(sed -n 's/.*"step":\([0-9]*\),"loss":\([0-9]*\),.*/\1 \2/p' out | tr '\n' ',')
[ "$got" = "1 6009,2 9012,3 6009,4 9012," ] || fail "lanes over files: $got"
echo 13 >>rows-2.csv
"$dnnc" run m.dnn --resume --steps 6 >out 2>&1 && fail "other data was taken"
grep -q "data file 'rows-2.csv' is not what the checkpoint was trained on" out || { cat out; fail "which file"; }
rm rows-?.csv
refused "no file fits 'rows-\*.csv'"

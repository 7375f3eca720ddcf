#!/bin/bash
# A build checks data files: a missing one gets a note and is left to the run;
# one that does not match the model is an error, and nothing is written.
. "$(dirname "$0")/lib.sh"
stub_cc
cat >m.dnn <<'END'
dim B = 4, P = 2

net f(x: [B, P]) -> [B] {
  param w: [P] = ones
  return dot(x, w, P)
}

data set {
  x: [B, P] = csv("rows.csv", 0..1)
  y: [B]    = csv("rows.csv", 2)
  eval      = 3
}

train {
  loss      = mse(f(set.x), set.y)
  optimizer = sgd(lr = 0.1)
  steps     = 1
}
END
build() { # expected exit, expected words on standard error
  "$dnnc" build m.dnn --quiet -o out.bundle "${@:3}" 2>err
  local got=$?
  [ $got = "$1" ] || { cat err; fail "exit $got, not $1: $2"; }
  [ -z "$2" ] || grep -q -- "$2" err || { cat err; fail "said something else than: $2"; }
  if [ "$1" = 0 ]; then
    [ -d out.bundle ] || fail "no bundle"
    rm -r out.bundle
  else
    [ ! -e out.bundle ] || fail "something was written"
  fi
}
build 0 "note: no file 'rows.csv': looked in .*leaves the incomplete last batch out"
# A run could not read it, so nothing is compiled.
"$dnnc" run m.dnn --no-save >out 2>err
[ $? = 1 ] || fail "a run without its file"
grep -q "^m.dnn:[0-9]*:[0-9]*: error: no file 'rows.csv'" err || { cat err; fail "no place of the missing file"; }
! grep -q 'kernels in' err || fail "a run without its file compiles"
rows() { for _ in $(seq "$1"); do echo "1,2,3"; done >rows.csv; }
rows 11
"$dnnc" build m.dnn --quiet -o out.bundle 2>err || fail "a good file"
[ ! -s err ] || { cat err; fail "a good file, and something is said"; }
rm -r out.bundle
"$dnnc" ir m.dnn --entry eval_remainder >out || fail "eval_remainder is there where the file is"
rows 5
build 1 "^m.dnn:[0-9]*:[0-9]*: error: 'set' has 2 samples to train on and 3 to evaluate; a batch takes 4"
build 1 "^help: a batch of at most 2 samples has enough"
rows 2
build 1 "'set' has 0 samples to train on"
build 1 "^help: 'eval' of this block leaves none for training"
printf '1,2\n' >rows.csv
build 1 "rows.csv"
build 1 "^help: columns count from 0, so the last one is 1"
printf 'one,two,three\n' >rows.csv
build 1 "rows.csv"
build 1 "^help: if the first line names the columns, add header = 1 to csv(...)"
printf '\xef\xbb\xbf1,2,3\n' >rows.csv
build 1 "^help: the file begins with a byte-order mark (EF BB BF); save it as UTF-8 without one"
printf '1,2,3\none,two,three\n' >rows.csv
build 1 "line 2, column 0: 'one' is not a number"
! grep -q '^help' err || fail "a help for another line than the first"
rm rows.csv && mkdir rows.csv
build 1 "rows.csv"

# Windows at random offsets may overlap: a stream needs no more than one.
cat >m.dnn <<'MODEL'
dim B = 4, T = 8, V = 128
net f(x: i32[B, T]) -> [B, T, V] {
  param w: [U:128, V] = normal(0.1)
  return gather(w, x, U)
}
data d {
  x: i32[B, T] = bytes("text")
  y: i32[B, T] = next(x)
}
train {
  loss      = cross_entropy(f(d.x), d.y, V)
  optimizer = sgd(lr = 0.1)
  steps     = 3
}
MODEL
printf 'nine char' >text
"$dnnc" build m.dnn --quiet -o out.bundle || fail "a stream of one window"
rm -r out.bundle
printf 'eight ch' >text
build 1 "'d' has 0 samples to train on and 0 to evaluate"
printf 'a text of thirty three characters' >text
build 1 "the evaluation records of 'd' are less than a sample (5 values of a stream, 9" d.eval=5
# The command line may name another source, wherever it lies.
mkdir -p elsewhere
printf 'eight ch' >elsewhere/text
build 1 "'d' has 0 samples to train on" "d.x=bytes(\"$PWD/elsewhere/text\")"
build 1 "error: no data block is named" 'train.loss=e.x'
build 1 "did you mean 'd.x'?" 'd.xx=bytes("text")'

# Integers are whole and in range.
sed -i 's/bytes("text")/csv("rows.csv", 0)/' m.dnn
rm -r rows.csv
seq 0 99 >rows.csv
sed -i '5s/.*/4.5/' rows.csv
build 1 "'rows.csv', line 5, column 0: 'd.x' is i32, not 4.5"
sed -i '5s/.*/3000000000/' rows.csv
build 1 "line 5, column 0: 'd.x' is i32, not 3000000000"

# A path in the model leads through no link out of the folders of the model, of
# the data and of the run; one on the command line may.
rm -rf elsewhere rows.csv
mkdir -p elsewhere inside data
seq 0 99 >elsewhere/rows.csv
cp elsewhere/rows.csv inside/rows.csv
at=$PWD
mkdir box
sed 's/csv("rows.csv", 0)/csv("deep\/rows.csv", 0)/' m.dnn >box/m.dnn
mv inside data box
cd box || exit 1
ln -s inside deep
build 0 "" # a link that stays
ln -sfn ../elsewhere deep
build 1 "^m.dnn:7:3: error: 'deep/rows.csv' leads through a link to '$at/elsewhere/rows.csv', outside the folders of the model, the data and the run; --follow-links allows it$"
build 0 "" --follow-links
build 0 "" 'd.x=csv("deep/rows.csv", 0)'
build 0 "" --data "$at/elsewhere" # it lies below the data folder
ln -s "$at/elsewhere/rows.csv" data/deep
rm deep && mkdir deep && ln -s "$at/elsewhere/rows.csv" deep/rows.csv
build 1 "'deep/rows.csv' leads through a link"
echo 'layer none(x) { return x }' >"$at/elsewhere/lib.dnn"
ln -s "$at/elsewhere/lib.dnn" lib.dnn
rm deep/rows.csv && cp inside/rows.csv deep
sed -i '1i import "lib.dnn"' m.dnn
build 1 "note: 'lib.dnn' leads through a link to '$at/elsewhere/lib.dnn', outside the folders"
build 0 "" --follow-links
# The model itself may be a link: what it names lies beside it.
mkdir "$at/links"
cd "$at/links" || exit 1
sed -i '1d' "$at/box/m.dnn"
ln -s "$at/box/m.dnn" m.dnn
build 0 ""
cd "$at" || exit 1

# Headers may announce and compressed files hold much: memory stays bounded, and
# time is proportional to the bytes that are read.
cp box/m.dnn m.dnn
sed -i 's/csv("deep\/rows.csv", 0)/idx("many.idx")/; s/i32\[B, T\] = next(x)/i32[B, T] = idx("many.idx")/' m.dnn
printf '\0\0\10\2\177\377\377\377\0\0\0\10abc' >many.idx
# The header of a file of tokens fits it.
sized() { # bytes after the header, of 12 tokens
  { printf '\210\330\064\001\001\0\0\0\014\0\0\0' && head -c $((1012 + $1)) /dev/zero; } >sized.bin
}
tokens=('d.x=tokens("sized.bin")' 'd.y=tokens("sized.bin")')
sized 26
build 1 "'sized.bin' is too long: its header announces 1048 bytes, but 1050 are there" "${tokens[@]}"
sized 22
build 1 "'sized.bin' is too short: its header announces 1048 bytes, but 1046 are there" "${tokens[@]}"
sized 24
build 0 "" "${tokens[@]}"
build 1 "'many.idx' is too short: its header announces 17179869188 bytes, but 15 are there"
gzip -k many.idx
build 1 "'many.idx.gz' unpacks to more than 4096 MiB\|'many.idx.gz' is too short: its header announces 17179869188 bytes, but at most [0-9]* are there" \
  'd.x=idx("many.idx.gz")' 'd.y=idx("many.idx.gz")'
{ printf '\0\0\10\2\0\40\0\0\0\0\0\10' && head -c 16777216 /dev/zero; } | gzip -9 >zeros.idx.gz
grown() { # most KB, arguments: build reads the data with little memory
  (ulimit -v "$1" && build 0 "" "${@:2}") || fail "memory: ${*:2}"
}
# Under sanitizers shadow memory alone takes more.
grep -q __asan_init "$dnnc" ||
  grown 200000 'd.x=idx("zeros.idx.gz")' 'd.y=idx("zeros.idx.gz")'
head -c 100000000 /dev/zero | gzip -9 >zeros.gz
build 1 "'zeros.gz' unpacks to more than 64 MiB, which is the most that is unpacked of it; unpack it with gunzip" \
  'd.x=bytes("zeros.gz")' 'd.y=next(x)'
build 1 "'zeros.gz', line 1: a field has more than 1048576 bytes" 'd.x=csv("zeros.gz",0)' 'd.y=next(x)'

# Channels are last in the file and first in the field.
array() { # shape, of zero bytes
  local head="{'descr': '|u1', 'fortran_order': False, 'shape': ($1), }"
  local n=${#head} bytes=1 size
  for size in ${1//,/ }; do bytes=$((bytes * size)); done
  printf '\x93NUMPY\x01\x00' >x.npy
  printf "\\x$(printf %02x $((n + 1)))\\x00%s\\n" "$head" >>x.npy
  head -c $bytes /dev/zero >>x.npy
}
cat >m.dnn <<'MODEL'
dim B = 4
net f(x: [B, C:3, Y:2, X:2]) -> [B] {
  param w: [C:3, Y:2, X:2] = ones
  return dot(x, w, (C, Y, X))
}
data d { x: [B, C:3, Y:2, X:2] = npy("x.npy") }
train { loss = mean(f(d.x)); optimizer = sgd(lr = 0.1); steps = 1 }
MODEL
array "8, 2, 2, 3"
build 1 "^m.dnn:6:10: error: 'x.npy' has records of \[2, 2, 3\], whose sizes 'd.x' has in another order"
build 1 "^help: write the dims of the field in the order of the file; no operator cares"
for shape in "8, 3, 2, 2" "8, 3, 4" "8, 12" "8, 1, 3, 2, 2"; do
  array "$shape"
  build 0 ""
done
sed -i 's/x: \[B, C:3, Y:2, X:2\] = npy/x: [B, Y:2, X:2, C:3] = npy/' m.dnn
array "8, 2, 2, 3"
build 0 ""

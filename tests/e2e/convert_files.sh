#!/bin/bash
# dnnc convert and files of other tools: 16 bits in and out, an index over two
# files, tensors behind more than 2 GiB; headers that are cut off, lie or say
# things twice are refused by name, and nothing is written.
. "$(dirname "$0")/lib.sh"
export LC_ALL=C

# st FILE HEADER: a safetensors file whose data come from standard input.
st() {
  local n=${#2} i
  {
    for ((i = 0; i < 8; i++)); do printf "\\x$(printf %02x $((n >> 8 * i & 255)))"; done
    printf %s "$2"
    cat
  } >"$1"
}
data_of() { # the bytes behind the header
  local n
  n=$(od -An -tu8 -N8 "$1" | tr -d ' ')
  tail -c +$((n + 9)) "$1"
}
convert() { "$dnnc" convert "$@" --quiet; }

# Every 16-bit pattern that is a number, to f32 and back: the same bytes.
echo 'a: [X] = b: f32[X]' >widen.map
for dtype in bf16:B:7f80 f16:F:7c00; do
  IFS=: read -r name kind infinity <<<"$dtype"
  upper=$(echo "$name" | tr a-z A-Z)
  limit=$((16#$infinity + 1))
  for ((i = 0; i < limit; i++)); do printf '\\x%02x\\x%02x' $((i & 255)) $((i >> 8)); done >escapes
  printf "$(cat escapes)" >numbers
  st 16.safetensors "{\"a\":{\"dtype\":\"$upper\",\"shape\":[$limit],\"data_offsets\":[0,$((2 * limit))]}}" <numbers
  convert 16.safetensors --map widen.map -o wide 2>err || { cat err; fail "$name to f32"; }
  [ "$(data_of wide/model.safetensors | wc -c)" = $((4 * limit)) ] || fail "$name: not f32"
  echo "b: [X] = a: $name[X]" >narrow.map
  convert wide --map narrow.map -o narrow 2>err || { cat err; fail "f32 to $name"; }
  grep -aq "\"dtype\":\"$upper\"" narrow/model.safetensors || fail "not $upper"
  data_of narrow/model.safetensors | cmp - numbers || fail "$name: other bytes after a round trip"
done

# Two files and an index, as other tools write them; an index that is wrong.
printf 'AAAABBBB' | st x1.safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
printf 'CCCC' | st x2.safetensors '{"c":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"format":"pt"}}  '
echo 'a: [A], c: [C] = all: [A + C]' >two.map
index() { printf '{"metadata":{"total_size":12},"weight_map":{%s}}' "$1" >model.safetensors.index.json; }
index '"a":"x1.safetensors","c":"x2.safetensors"'
convert model.safetensors.index.json --map two.map -o all 2>err || { cat err; fail "two files"; }
[ "$(data_of all/model.safetensors)" = AAAABBBBCCCC ] || fail "two files: other data"
convert all --map two.map A=2 --reverse -o apart || fail "apart"
convert apart --map two.map -o all2 || fail "together"
cmp all/model.safetensors all2/model.safetensors || fail "there and back is not the same bytes"
refuse() { # WHAT PATTERN ARGUMENT...: exit 3 (damaged), named, nothing written
  local what=$1 pattern=$2
  shift 2
  convert "$@" -o none 2>err
  [ $? = 3 ] || { cat err; fail "$what: not exit 3"; }
  grep -q -- "$pattern" err || { cat err; fail "$what: another message"; }
  [ ! -e none ] || fail "$what: something was written"
}
wrong_index() { index "$3" && refuse "$1" "$2" model.safetensors.index.json --map two.map; }
wrong_index "a file that is not there" "x3.safetensors" '"a":"x1.safetensors","c":"x3.safetensors"'
wrong_index "a tensor in another file" "x1.safetensors" '"a":"x1.safetensors","c":"x1.safetensors"'
wrong_index "a tensor twice" "index.json" '"a":"x1.safetensors","a":"x1.safetensors","c":"x2.safetensors"'
wrong_index "a file elsewhere" "index.json" '"a":"../x1.safetensors","c":"x2.safetensors"'

# A small tensor behind 2.4 GiB that need not exist.
big=$((600 * 1024 * 1024))
st big.safetensors "{\"big\":{\"dtype\":\"F32\",\"shape\":[$big],\"data_offsets\":[0,$((4 * big))]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[$((4 * big)),$((4 * big + 4))]}}" </dev/null
truncate -s +$((4 * big)) big.safetensors && printf 'WXYZ' >>big.safetensors
printf 'drop big\na = b\n' >big.map
convert big.safetensors --map big.map -o small 2>err || { cat err; fail "behind 2 GiB"; }
[ "$(data_of small/model.safetensors)" = WXYZ ] || fail "behind 2 GiB: other data"
[ "$(stat -c %s small/model.safetensors)" -lt 1000 ] || fail "a dropped tensor was written"

# Headers that lie.
one='{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
echo 'a: [X] = b: [X]' >one.map
bad() { # WHAT HEADER BYTES_OF_DATA [PATTERN]
  head -c "$3" /dev/zero | st bad.safetensors "$2"
  refuse "$1" "${4:-bad.safetensors}" bad.safetensors --map one.map
}
head -c 8 /dev/zero | st good.safetensors "$one"
convert good.safetensors --map one.map -o good || fail "the good one"
for n in 0 4 8 9 30 $(($(stat -c %s good.safetensors) - 1)); do
  head -c "$n" good.safetensors >bad.safetensors
  refuse "cut off after $n bytes" bad.safetensors bad.safetensors --map one.map
done
for length in '\xff\xff\xff\xff\xff\xff\xff\x7f' '\xff\xff\xff\xff\xff\xff\xff\xff' '\x00\x00\x00\x00\x01\x00\x00\x00'; do
  { printf "$length"; printf %s "$one"; } >bad.safetensors
  refuse "length $length" bad.safetensors bad.safetensors --map one.map
done
bad "a name twice" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}' 16
bad "a key twice" '{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8
bad "more data than tensors" "$one" 12
bad "two in one place" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"c":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8
bad "offsets backwards" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}' 8
bad "offsets past the end" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}' 8
bad "another size than the shape" '{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}' 8
bad "a negative size" '{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}' 8
bad "sizes that overflow" '{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,8]}}' 8
bad "an unknown dtype" '{"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}}' 8
bad "no shape" '{"a":{"dtype":"F32","data_offsets":[0,8]}}' 8
bad "text behind the object" "$one{}" 8
bad "a number with a point" '{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}' 8
bad "no object" '[]' 8
bad "nothing closed" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8' 8
bad "deep nesting" "{\"__metadata__\":$(printf '[%.0s' {1..5000})" 8

#!/bin/bash
# dnnc convert and files of other tools: 16 bits in and out, an index over two
# files, tensors after more than 2 GiB; headers that are truncated, wrong or
# repeat a name are refused with a message that names them, and nothing is
# written.
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
refuse() { # WHAT PATTERN ARGUMENT...: exit 1 (damaged), named, nothing written
  local what=$1 pattern=$2
  shift 2
  convert "$@" -o none 2>err
  [ $? = 1 ] || { cat err; fail "$what: not exit 1"; }
  grep -qF -- "$pattern" err || { cat err; fail "$what: another message"; }
  [ ! -e none ] || fail "$what: something was written"
}
wrong_index() { index "$3" && refuse "$1" "$2" model.safetensors.index.json --map two.map; }
wrong_index "a file that is not there" "x3.safetensors': there is no such file" '"a":"x1.safetensors","c":"x3.safetensors"'
wrong_index "a tensor in another file" "x1.safetensors' has no tensor 'c', which the index says it has" '"a":"x1.safetensors","c":"x1.safetensors"'
wrong_index "a tensor twice" "index.json': its weight_map has 'a' twice" '"a":"x1.safetensors","a":"x1.safetensors","c":"x2.safetensors"'
wrong_index "a file elsewhere" "index.json': tensor 'a' is in '../x1.safetensors', which is not the plain name" '"a":"../x1.safetensors","c":"x2.safetensors"'

# A small tensor behind 2.4 GiB that need not exist.
big=$((600 * 1024 * 1024))
st big.safetensors "{\"big\":{\"dtype\":\"F32\",\"shape\":[$big],\"data_offsets\":[0,$((4 * big))]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[$((4 * big)),$((4 * big + 4))]}}" </dev/null
truncate -s +$((4 * big)) big.safetensors && printf 'WXYZ' >>big.safetensors
printf 'drop big\na = b\n' >big.map
convert big.safetensors --map big.map -o small 2>err || { cat err; fail "behind 2 GiB"; }
[ "$(data_of small/model.safetensors)" = WXYZ ] || fail "behind 2 GiB: other data"
[ "$(stat -c %s small/model.safetensors)" -lt 1000 ] || fail "a dropped tensor was written"

# A full disk: how many bytes are missing.
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
  n=40000
  head -c $((4 * n)) /dev/zero | st much.safetensors "{\"a\":{\"dtype\":\"F32\",\"shape\":[$n],\"data_offsets\":[0,$((4 * n))]}}"
  echo 'a = b' >same.map
  mkdir disk
  unshare -m bash -c "mount -t tmpfs -o size=100k none disk && '$dnnc' convert much.safetensors --map same.map -o disk --quiet; code=\$?; ls -A disk >left; exit \$code" 2>err
  [ $? = 3 ] || { cat err; fail "full disk: not exit 3"; }
  grep -qx "dnnc: error: 'model.safetensors': cannot write: No space left on device; its files take 163840 bytes, and 102400 are free: 61440 are missing" err ||
    { cat err; fail "full disk: another message"; }
  [ ! -s left ] || fail "full disk: something is left: $(cat left)"
fi

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
bad "a name twice" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}' 16 "bad.safetensors': its header has tensor 'a' twice"
bad "a key twice" '{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8 "tensor 'a': it has 'dtype' twice"
bad "more data than tensors" "$one" 12 "its last 4 bytes belong to no tensor: the tensors end at byte 8"
bad "two in one place" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"c":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8 "tensors 'a' and 'c' overlap: one ends at byte 8 of the data, the other begins at 0"
bad "a gap" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}' 12 "a gap before tensor 'a': bytes 0 to 3 of the data belong to no tensor"
bad "offsets backwards" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}' 8 "tensor 'a': its data_offsets [8, 0] are reversed"
bad "offsets past the end" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}' 8 "tensor 'a': it ends at byte 16 of the data, but the file has only 8"
bad "another size than the shape" '{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}' 8 "tensor 'a': its shape [3] of F32 takes 12 bytes, but its data_offsets [0, 8] hold 8"
bad "a negative size" '{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}' 8 "is '-', where an integer that is not negative must stand"
bad "sizes that overflow" '{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,8]}}' 8 "tensor 'a': its shape [4294967296, 4294967296, 4294967296] is too large"
bad "an unknown dtype" '{"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}}' 8 "tensor 'a': its dtype 'F31' is unknown"
bad "no shape" '{"a":{"dtype":"F32","data_offsets":[0,8]}}' 8 "tensor 'a': it has no 'shape'"
bad "a name that is not UTF-8" "{\"$(printf '\xff')\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}" 8 "its header: the string at byte 2 is not UTF-8"
bad "text after the object" "$one{}" 8 "where nothing more must stand"
bad "a number with a point" '{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}' 8 "where the end of an integer must stand"
bad "no object" '[]' 8 "its header: byte 0 of the text is '[', where '{' must stand"
bad "nothing closed" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8' 8 "tensor 'a': the text ends at byte 51, where ']' must stand"
bad "deep nesting" "{\"__metadata__\":$(printf '[%.0s' {1..5000})" 8 "its header: byte 16 of the text is '[', where '{' must stand"

# Files of other formats, by their first bytes.
other() { # BYTES PATTERN
  printf "$1" >other.pth
  refuse "$2" "$2" other.pth --map one.map
}
other 'PK\x03\x04\x00\x00\x08\x08\x00\x00' "other.pth': it is a ZIP archive, as torch.save writes, not a safetensors file"
grep -q "^help: convert it in Python: .*safetensors.torch.save_file(.*torch.load('IN.pth', map_location='cpu', weights_only=True)" err ||
  { cat err; fail "a .pth file: no advice"; }
other '\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.' "it is a pickle, as torch.save once wrote"
grep -q "^help: convert it" err || fail "a pickle: no advice"
other 'GGUF\x03\x00\x00\x00' "it is a GGUF file"
mkdir hub && : >hub/pytorch_model.bin
refuse "a folder of PyTorch" "neither model.safetensors.index.json nor model.safetensors (pytorch_model.bin is not read" hub --map one.map

# An index that is there and cannot be read is not passed by for another file.
mkdir both && cp good.safetensors both/model.safetensors
"$dnnc" convert both --map one.map -o none --quiet || fail "a folder with one file"
rm -r none
index_is() { refuse "an index that is $1" "both/model.safetensors.index.json': $2" both --map one.map; rm -rf both/model.safetensors.index.json; }
mkfifo both/model.safetensors.index.json && index_is "a pipe" "it is not a regular file"
mkdir both/model.safetensors.index.json && index_is "a folder" "it is not a regular file"
ln -s nowhere both/model.safetensors.index.json && index_is "a link to nowhere" "it is a symbolic link"
: >both/model.safetensors.index.json && index_is "empty" "the text ends at byte 0, where '{' must stand"
echo '{}' >both/model.safetensors.index.json && index_is "of nothing" "it has no 'weight_map'"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  touch both/model.safetensors.index.json && chmod 0 both/model.safetensors.index.json && chmod 755 .
  mkdir open && chmod 777 open
  setpriv --reuid 65534 --clear-groups "$dnnc" convert both --map one.map -o open/none --quiet 2>err
  [ $? = 3 ] || { cat err; fail "an index without permission: not exit 3"; }
  grep -q "model.safetensors.index.json': cannot open: Permission denied" err || { cat err; fail "an index without permission"; }
  rm both/model.safetensors.index.json
fi

# Numbers that nobody can train with are said.
printf '\x00\x00\x00\x00\x00\x00\xf0\x3f\x9c\x75\x00\x88\x3c\xe4\x37\x7e' |
  st big.safetensors '{"a":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}'
echo 'a: [X] = b: f32[X]' >f32.map
convert big.safetensors --map f32.map -o beyond 2>err || { cat err; fail "beyond f32"; }
grep -qx "warning: 'big.safetensors': tensor 'a': 1 of 2 values are beyond f32 and became infinite, the first (1e+300) at index 1" err ||
  { cat err; fail "beyond f32: not said"; }
printf '\x00\x00\x80\x3f\x00\x00\xc0\x7f' | st nan.safetensors "$one"
convert nan.safetensors --map one.map -o nan 2>err || { cat err; fail "NaN"; }
grep -qx "warning: 'nan.safetensors': tensor 'a': 1 of 2 values are NaN or infinite, the first (NaN) at index 1" err ||
  { cat err; fail "NaN: not said"; }
# Denormals come through, also in another width.
printf '\x01\x00\x00\x00\xff\xff\x7f\x80' >tiny
st tiny.safetensors "$one" <tiny
echo 'a: [X] = b: f64[X]' >f64.map
echo 'b: [X] = a: f32[X]' >back.map
convert tiny.safetensors --map f64.map -o tiny64 && convert tiny64 --map back.map -o tiny32 || fail "denormals"
data_of tiny32/model.safetensors | cmp - tiny || fail "denormals: other bytes"
exit 0

#!/bin/bash
# run.sh [SECONDS [SEED]] -- fuzzes the parsers and the readers of files under
# ASan and UBSan, SECONDS each, two at a time.  A crash, a leak or a hang fails.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-10} seed=${2:-$(date +%j)}
out=build-fuzz
mkdir -p $out
echo "fuzzing for $seconds s each, seed $seed"

if ! command -v clang >/dev/null ||
  ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n){return !d&&n;}' |
    clang -x c -fsanitize=fuzzer -o $out/probe - 2>/dev/null; then
  echo "skipped: needs clang with libFuzzer"
  exit 0
fi
CC=clang cmake -S . -B $out -G Ninja -DDNNC_SANITIZE=ON -DDNNC_FUZZ=ON >/dev/null
ninja -C $out support ir frontend runtime convert >/dev/null
flags="-g1 -O1 -fsanitize=fuzzer-no-link -fsanitize=address,undefined -fno-sanitize-recover=all -D_GNU_SOURCE -I."

compile() { # name, libraries and flags
  local name=$1
  shift
  clang $flags tests/fuzz/"$name".c -o $out/"$name" "$@" -lz -lm -ldl -lpthread
}
compile fuzz_syntax $out/libfrontend.a $out/libir.a $out/libsupport.a &
compile fuzz_meaning $out/libfrontend.a $out/libir.a $out/libsupport.a
wait $!
compile fuzz_checkpoint -fsanitize=fuzzer $out/libruntime.a $out/libsupport.a &
compile fuzz_files -fsanitize=fuzzer $out/libconvert.a $out/libfrontend.a \
  $out/libruntime.a $out/libir.a $out/libsupport.a
wait $!
compile fuzz_pictures -fsanitize=fuzzer $out/libruntime.a $out/libsupport.a
gcc -O1 -o $out/make_pictures tests/e2e/make_pictures.c -ldl

# It needs the engine of the planner alone.
compile fuzz_iopddl -fsanitize=fuzzer benchmarks/iopddl.c planner/factor/*.c \
  $out/libsupport.a

mkdir -p $out/corpus $out/corpus_files $out/corpus_pictures \
  $out/corpus_iopddl
(cd $out && ./make_pictures pictures 6 3 24) || echo "no libjpeg-turbo: fuzzing PNG alone"
for file in $out/pictures/c?/*.jpg docs/inspect.png; do
  [ -e "$file" ] || continue
  { printf '\2\5' && head -c 30000 "$file"; } >$out/corpus_pictures/"$(basename "$file")"
done
cp tests/iopddl/example.json $out/corpus_iopddl
for file in models/*.map tests/golden/maps/*.map; do
  { printf '\0' && cat "$file"; } >$out/corpus_files/"$(basename "$file")"
done
{ printf '\1' && head -n 200 data/inputs/gpt2-vocab.bpe; } >$out/corpus_files/bpe
for version in 1 2; do
  { printf '\2\223NUMPY\'$version'\0'
    [ $version = 1 ] && printf '\76\0' || printf '\76\0\0\0'
    printf '%-61s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }"
    printf '12345678'; } >$out/corpus_files/npy$version
done
printf '\3,"a ""b""";x\r\n1,"a",2\n\n' >$out/corpus_files/csv

fuzz_syntax() {
  timeout $((seconds + 60)) $out/fuzz_syntax "$seconds" "$seed" models/*.dnn \
    models/*.cluster models/*.plan tests/golden/syntax/*.dnn
}
fuzz_meaning() { # it leaves files where it runs
  (cd $out && timeout $((seconds + 60)) ./fuzz_meaning "$seconds" "$seed" \
    $(ls ../models/*.dnn ../tests/golden/*/*.dnn ../tests/golden/*/*.ir \
      ../tests/reference/*.dnn | grep -v syntax/))
}
bounds="-max_total_time=$seconds -seed=$seed -rss_limit_mb=512 -timeout=10 -print_final_stats=1"
fuzz_checkpoint() {
  $out/fuzz_checkpoint $bounds -max_len=65536 $out/corpus
}
fuzz_files() {
  $out/fuzz_files $bounds -max_len=4096 $out/corpus_files
}
fuzz_pictures() {
  $out/fuzz_pictures $bounds -max_len=32768 $out/corpus_pictures
}
fuzz_iopddl() {
  $out/fuzz_iopddl $bounds -max_len=4096 $out/corpus_iopddl
}
both() { # two of the functions; a failure of either ends the script
  local status=0 lines=8 first
  "$1" >$out/first.log 2>&1 &
  first=$!
  "$2" >$out/second.log 2>&1 || status=$?
  wait $first || status=$?
  [ $status = 0 ] || lines=60
  tail -n $lines $out/first.log $out/second.log
  return $status
}
both fuzz_syntax fuzz_meaning
both fuzz_checkpoint fuzz_files
both fuzz_pictures fuzz_iopddl

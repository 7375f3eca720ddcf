#!/bin/bash
# run.sh [SECONDS [SEED]] -- fuzzes the parsers and the readers of files under
# ASan and UBSan, SECONDS each.  A crash, a leak or a hang fails.
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
CC=clang cmake -S . -B $out -G Ninja -DDNNC_SANITIZE=ON \
  -DCMAKE_C_FLAGS=-fsanitize=fuzzer-no-link >/dev/null
ninja -C $out support ir frontend runtime convert >/dev/null
flags="-g -O1 -fsanitize=fuzzer-no-link -fsanitize=address,undefined -fno-sanitize-recover=all -D_GNU_SOURCE -I."

clang $flags tests/fuzz/fuzz_syntax.c -o $out/fuzz_syntax \
  $out/libfrontend.a $out/libir.a $out/libsupport.a -lm -ldl
timeout $((seconds + 60)) $out/fuzz_syntax "$seconds" "$seed" models/*.dnn \
  models/*.cluster models/*.plan tests/golden/syntax/*.dnn

clang $flags tests/fuzz/fuzz_meaning.c -o $out/fuzz_meaning \
  $out/libfrontend.a $out/libir.a $out/libsupport.a -lm -ldl
(cd $out && timeout $((seconds + 60)) ./fuzz_meaning "$seconds" "$seed" \
  $(ls ../models/*.dnn ../tests/golden/*/*.dnn ../tests/golden/*/*.ir \
    ../tests/reference/*.dnn | grep -v syntax/))

clang $flags -fsanitize=fuzzer tests/fuzz/fuzz_checkpoint.c \
  -o $out/fuzz_checkpoint $out/libruntime.a $out/libsupport.a -lz -lm -ldl \
  -lpthread
mkdir -p $out/corpus
$out/fuzz_checkpoint -max_total_time="$seconds" -seed="$seed" -max_len=65536 \
  -rss_limit_mb=512 -timeout=10 -print_final_stats=1 $out/corpus 2>&1 |
  tail -n 8

clang $flags -fsanitize=fuzzer tests/fuzz/fuzz_files.c -o $out/fuzz_files \
  $out/libconvert.a \
  $out/libfrontend.a $out/libruntime.a $out/libir.a $out/libsupport.a -lz -lm \
  -ldl -lpthread
mkdir -p $out/corpus_files
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
$out/fuzz_files -max_total_time="$seconds" -seed="$seed" -max_len=4096 \
  -rss_limit_mb=512 -timeout=10 -print_final_stats=1 $out/corpus_files 2>&1 |
  tail -n 8

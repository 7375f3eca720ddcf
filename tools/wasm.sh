#!/bin/bash
# wasm.sh -- front end, ir and passes also compile for wasm32-wasi, so that they
# stay free of threads, files and dynamic libraries.
set -eu
cd "$(dirname "$0")/.."
if ! command -v clang >/dev/null || [ ! -d /usr/include/wasm32-wasi ]; then
  echo "skipped: needs clang and wasi-libc"
  exit 0
fi
out=build-wasm
mkdir -p $out/frontend
bison -o $out/frontend/parser.c --defines=$out/frontend/parser.h frontend/syntax/parser.y
flex -o $out/frontend/lexer.c --header-file=$out/frontend/lexer.h frontend/syntax/lexer.l
count=0
# xxhash.h is one header without dependencies; it is taken from the host.
mkdir -p $out/include
cp /usr/include/xxhash.h $out/include/
for file in $(find support ir frontend passes $out/frontend -name '*.c'); do
  [ -f "$file" ] || continue
  clang --target=wasm32-wasi --sysroot=/usr -isystem /usr/include/wasm32-wasi \
    -std=gnu11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -Wno-unused-command-line-argument \
    -I. -I$out -I$out/frontend -I$out/include -c "$file" \
    -o $out/"$(echo "$file" | tr / _)".o
  count=$((count + 1))
done
echo "wasm.sh: $count files compile for wasm32-wasi"

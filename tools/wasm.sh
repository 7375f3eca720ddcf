#!/bin/bash
# wasm.sh -- front end, ir and passes also compile for wasm32-wasi, so that they
# stay free of threads, files and dynamic libraries.  The headers of WASI tell;
# nothing is linked, so no code is made.
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
# xxhash.h is one header without dependencies; it is taken from the host.
mkdir -p $out/include
cp /usr/include/xxhash.h $out/include/
compile() { # file
  clang --target=wasm32-wasi --sysroot=/usr -isystem /usr/include/wasm32-wasi \
    -std=gnu11 -D_GNU_SOURCE -fsyntax-only -Wall -Wextra -Werror -Wno-unused-command-line-argument \
    -I. -I$out -I$out/frontend -I$out/include "$1"
}
export -f compile
export out
find support ir interp planner price frontend passes $out/frontend -name '*.c' >$out/files
xargs -P "$(nproc)" -I FILE bash -c 'compile FILE' <$out/files
count=$(wc -l <$out/files)
echo "wasm.sh: $count files compile for wasm32-wasi"

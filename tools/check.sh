#!/bin/bash
# check.sh -- what must be green before a change is handed over: format,
# phrases, layers, sizes, both compilers, the tests under sanitizers and
# wasm32-wasi.
#   check.sh [STEP ...]   with any of: format phrases layers size clang types
#                         sanitize wasm fuzz
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${*:-format phrases layers size clang types sanitize wasm fuzz}

configure() { # folder option...
  cmake -S . -B "$1" -G Ninja -DDNNC_WERROR="${DNNC_WERROR:-OFF}" "${@:2}" \
    >/dev/null
}
sources() { git ls-files '*.c' '*.h' | grep -v '^tests/shim/'; }

for step in $steps; do
  echo "== $step"
  case $step in
  format) sources | xargs clang-format --dry-run -Werror ;;
  phrases) tools/phrases.sh ;;
  layers) # of objects that are there
    [ -f build/build.ninja ] || configure build
    ninja -C build | tail -n 1
    tools/layers.sh
    ;;
  size) tools/size.sh ;;
  clang) # its warnings need no code; they come with assertions and, where a file
    # has some, without
    CC=clang configure build-clang -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
    # shellcheck disable=SC2046 # words
    ninja -C build-clang $(ninja -C build-clang -t targets all |
      sed -n 's/\(.*\.[ch]\): CUSTOM_COMMAND$/\1/p') | tail -n 1
    commands=build-clang/compile_commands.json
    python3 tools/compile_commands.py $commands -fsyntax-only -UNDEBUG |
      xargs -0 -P 2 -n 1 sh -c
    python3 tools/compile_commands.py --naming 'assert *\(|NDEBUG' $commands \
      -fsyntax-only -DNDEBUG | xargs -0 -P 2 -n 1 sh -c
    ;;
  types) # gcc's come from its optimiser too; Debug is below
    [ -z "${CI:-}" ] || continue # it builds so, for its tests
    CC=gcc configure build-gcc-Release -DCMAKE_BUILD_TYPE=Release
    ninja -C build-gcc-Release dnnc | tail -n 1
    rm -rf build-gcc-Release
    ;;
  sanitize)
    linker= # lld links 150 programs in half the time
    ! command -v ld.lld >/dev/null || linker=-fuse-ld=lld
    configure build-asan -DDNNC_SANITIZE=ON -DCMAKE_BUILD_TYPE=Debug \
      -DCMAKE_C_FLAGS_DEBUG= -DCMAKE_EXE_LINKER_FLAGS=$linker
    ninja -C build-asan
    log=$(mktemp)
    status=0
    ctest --test-dir build-asan --output-on-failure -j2 -LE slow >"$log" 2>&1 ||
      status=$?
    tail -n 25 "$log"
    if grep -q 'LeakSanitizer' "$log"; then
      grep -A20 'LeakSanitizer' "$log" | head -n 60
      status=1
    fi
    rm -f "$log"
    [ $status = 0 ] || exit $status
    ;;
  wasm) tools/wasm.sh ;;
  fuzz)
    tests/fuzz/run.sh 10
    ;;
  *) echo "check.sh: no step '$step'" >&2; exit 1 ;;
  esac
done
echo "check.sh: all green"

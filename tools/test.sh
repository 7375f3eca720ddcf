#!/bin/bash
# test.sh -- installs what is missing, builds, runs every test, fastest first.
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh --test
cmake -S . -B build -G Ninja -DDNNC_WERROR="${DNNC_WERROR:-OFF}" \
  -DCMAKE_C_FLAGS_RELWITHDEBINFO="${DNNC_C_FLAGS:--O2 -g -DNDEBUG}" >/dev/null
ninja -C build
ctest --test-dir build --output-on-failure -j2 "$@"

#!/bin/bash
# bless.sh -- rewrites the golden files from what the code prints now; read the
# diff as code before committing it.
set -eu
cd "$(dirname "$0")/.."
ninja -C build
DNNC_BLESS=1 ctest --test-dir build -j2 >/dev/null || true
git --no-pager diff --stat -- tests docs

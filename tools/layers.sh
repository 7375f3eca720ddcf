#!/bin/bash
# layers.sh -- who may include and call whom, and circles of files: the rule is
# under "Layers" in ARCHITECTURE.md, tools/layers.py checks it.
#   layers.sh [BUILD]    a built folder (build); without one, includes alone
set -eu
cd "$(dirname "$0")/.."
exec python3 tools/layers.py "${1:-build}"

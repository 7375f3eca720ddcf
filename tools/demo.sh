#!/bin/bash
# demo.sh -- from nothing to a trained model: installs what is missing, builds
# dnnc, trains a character GPT on two ranks, shows what it writes.
set -eu
cd "$(dirname "$0")/.."
steps=${1:-2000}
tools/setup.sh
cmake -S . -B build -G Ninja >/dev/null
ninja -C build dnnc | tail -n 1
echo
echo "== the model"
build/dnnc check models/chargpt.dnn
echo "== training on two ranks"
build/dnnc run models/chargpt.dnn --ranks 2 "steps=$steps"
echo "== 200 characters of its text"
build/dnnc sample models/chargpt.dnn --load chargpt.ckpt --count 200

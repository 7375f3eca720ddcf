#!/bin/bash
# Lines about stages are pins of `dnnc plan`: what is found has each of them, and those that
# cannot be kept are refused with their place (tests/golden/wrong_stage_pins.txt).
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
# Scratch of oneDNN depends on the instructions of the processor.
export ONEDNN_MAX_CPU_ISA=AVX2
cp "$root/benchmarks/stage_pins.py" .
python3 stage_pins.py files || fail "files"

# ---- refused, each with its place ----
DNNC_BLESS=${DNNC_BLESS:-} python3 stage_pins.py refusals "$dnnc" "$root/tests/golden/wrong_stage_pins.txt" || fail "refusals"

# ---- kept ----
python3 stage_pins.py kept "$dnnc" || fail "pins that are kept"

# ---- found plans as pins ----
python3 stage_pins.py again "$dnnc" || fail "plans as pins"

# ---- conflicts ----
python3 stage_pins.py conflicts "$dnnc" || fail "conflicts"

# ---- random pins; the command can be continued with --from ----
python3 stage_pins.py random "$dnnc" --seed 1 --cases 8 || fail "random pins"

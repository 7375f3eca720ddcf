#!/bin/bash
# Which of two plans is faster, and where that changes, as published systems found
# (30 s).
. "$(dirname "$0")/lib.sh"
python3 "$root/benchmarks/orders.py" "$dnnc" "$work/orders" || fail "an order"

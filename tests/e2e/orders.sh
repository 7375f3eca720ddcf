#!/bin/bash
# Which of two plans is faster, and where that changes, as published systems found
# (40 s): those that take little time.
. "$(dirname "$0")/lib.sh"
python3 "$root/benchmarks/orders.py" "$dnnc" "$work/orders" recomputation zero3 exposed weird_trick \
  microbatch zero_bubble pipedream_data || fail "an order"

#!/bin/bash
# Random plans that combine features, on models of nine kinds: trained, evaluated, killed, resumed and predicted as one rank
# does, in the memory that was foretold, and equal by `verify`.
# Usage: train_plans.sh DNNC [COUNT [SEED [FIRST]]]; with MOCK=1 each is trained on the mock GPU, too.
. "$(dirname "$0")/lib.sh"
. "$root/tests/mock/lib.sh"
command -v python3 >/dev/null || skip "no python3"
has_mpi || skip "needs mpirun"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
mock=
if [ -n "${MOCK:-}" ]; then
  mock_ready
  mock=$work/mock.so
  unset DNN_CUDA_LIB DNN_CUBLASLT_LIB DNN_NCCL_LIB
fi
# shellcheck disable=SC2086 # none or one word
python3 "$root/tests/random/train_plans.py" "$dnnc" "${2:-3}" "${3:-6}" "${4:-37}" $mock || fail "trained plans"

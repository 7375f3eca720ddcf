#!/bin/bash
# Maxima, minima and sums over the batch in every dtype that a model may have: over
# ranks, as shards of the result, and over micro-batches, whose loss is that of one
# rank; and on the mock GPU, whose NCCL has no i16.
. "$(dirname "$0")/lib.sh"
. "$root/tests/mock/lib.sh"
has_mpi || skip "no mpirun"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

dtypes="u8 i8 i16 i32 i64 f32"
# Sums of the three narrow dtypes wrap.
awk 'BEGIN {
  for (i = 0; i < 12; i++)
    for (j = 0; j < 4; j++) {
      n = (i * 37 + j * 101) * 7919; end = j < 3 ? "," : "\n"
      printf "%d%s", n % 256, end >"u8.csv"
      printf "%d%s", n % 256 - 128, end >"i8.csv"
      printf "%d%s", n % 65536 - 32768, end >"i16.csv"
      printf "%d%s", n % 1000 - 2000, end >"i32.csv"
      printf "%d%s", n % 900 + 100, end >"i64.csv"
      printf "%g%s", (n % 1000 - 2000) / 16, end >"f32.csv"
    }
}'

# model FILE CAST DTYPE...: what is reduced is weighted, so that no two losses agree.
model() {
  local file=$1 cast=$2 dtype values=
  shift 2
  {
    echo "dim B = 12, S = 4"
    echo "net f($(printf 'x_%s: %s[B, S]\n' $(for dtype; do echo $dtype $dtype; done) | paste -sd, )) -> [S] {"
    echo "  param z: [] = 0"
    for dtype; do
      local x="x_$dtype"
      [ "$cast" = none ] || x="cast(x_$dtype, $cast)"
      echo "  y_$dtype = $x"
      for op in max min sum; do
        echo "  ${op}_$dtype = $op(y_$dtype, B)"
        values="$values + $((${#values} / 3 + 1)) * cast(${op}_$dtype, f32)"
      done
    done
    echo "  return (${values# + }) / 1000 + z"
    echo "}"
    echo "data d {"
    for dtype; do echo "  $dtype: $dtype[B, S] = csv(\"$dtype.csv\", 0..3)"; done
    echo "  order = sequential"
    echo "}"
    echo "train {"
    echo "  loss = mean(f($(printf 'd.%s\n' "$@" | paste -sd,)))"
    echo "  optimizer = sgd(lr = 1)"
    echo "  steps = 1"
    echo "}"
  } >"$file"
}
# shellcheck disable=SC2086 # words
model whole.dnn none $dtypes
model half.dnn bf16 f32

# plan MICROBATCHES SHARDED
plan() {
  echo "mesh { data = 2 }"
  echo "plan {"
  echo "  microbatches = $1"
  echo "  shard B over data"
  [ -z "$2" ] || echo "  shard $2: S over data"
  echo "}"
}
names() { # of what is reduced
  local file=$1
  sed -n 's/^  \(\(max\|min\|sum\)_[a-z0-9]*\) =.*/\1/p' "$file" | paste -sd,
}
for microbatches in 1 3; do
  plan $microbatches "" >sums-$microbatches.plan
  for file in whole half; do
    plan $microbatches "$(names $file.dnn)" >$file-$microbatches.plan
  done
done

loss() { # COMMAND...
  "$@" --json --quiet >out 2>err </dev/null || { cat err >&2; return 1; }
  field loss out
}
for file in whole half; do
  one=$(loss "$dnnc" run $file.dnn --no-save --quick)
  [ -n "$one" ] || fail "$file on one rank"
  for options in "--ranks 3" "--microbatches 3" "--plan sums-1.plan" "--plan sums-3.plan" \
    "--plan $file-1.plan" "--plan $file-3.plan"; do
    # shellcheck disable=SC2086 # words
    got=$(loss "$dnnc" run $file.dnn --no-save --quick $options)
    close "$got" "$one" 1e-6 || fail "$file $options: '$got', not $one"
  done
  for plan in $file-1 $file-3; do
    "$dnnc" verify $file.dnn --plan $plan.plan --target cuda >out 2>&1 || { cat out; fail "verify $plan"; }
  done
done

# Sums of values in bf16, which Open MPI's ranks round once and NCCL at each rank.
gpt="$root/benchmarks/systems/gpt.dnn precision.compute=bf16"
rounding=$root/benchmarks/plans/sequence_bf16.plan
# shellcheck disable=SC2086 # words
{
  rounded=$(loss "$dnnc" run $gpt --steps 4 --no-save --quick)
  got=$(loss "$dnnc" run $gpt --steps 4 --no-save --quick --plan "$rounding")
}
close "$got" "$rounded" 2e-3 || fail "sums in bf16: '$got', not $rounded"

mock_ready
one=$(loss "$dnnc" run whole.dnn --no-save --quick)
for plan in sums-3 whole-1; do
  # shellcheck disable=SC2086 # words
  mock_build_file gpu whole.dnn --target $mock_target --plan $plan.plan || {
    grep -q NVRTC gpu.log && skip "no NVRTC ($(tail -n 1 gpu.log))"
    cat gpu.log
    fail "a build for the GPU"
  }
  got=$(loss mock_run gpu --data "$work")
  close "$got" "$one" 1e-6 || fail "$plan on the mock GPU: '$got', not $one"
  ! grep 'mock:' err || fail "$plan"
done
# shellcheck disable=SC2086 # words
mock_build_file gpu $gpt --target $mock_target --plan "$rounding" ||
  { cat gpu.log; fail "a build with sums in bf16"; }
got=$(loss mock_run gpu --steps 4)
close "$got" "$rounded" 2e-3 || fail "sums in bf16 on the mock GPU: '$got', not $rounded"

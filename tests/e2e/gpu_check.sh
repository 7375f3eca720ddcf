#!/bin/bash
# tools/gpu-check.sh: all parts pass on the mock driver, where nothing is measured;
# without a GPU it says so; a part that fails does not stop the next one.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
command -v python3 >/dev/null || skip "needs python3"
export DNNC_BUILD
DNNC_BUILD=$(dirname "$dnnc")
[ -x "$DNNC_BUILD/gpu_kernels" ] || fail "gpu_kernels is not built"
"$dnnc" build "$root/benchmarks/systems/mlp.dnn" --target cuda:sm_90 -o mlp --quiet 2>err ||
  { grep -q NVRTC err && skip "no NVRTC"; cat err; fail "a build"; }

"$root/tools/gpu-check.sh" --dry-run --out report >out || { cat report/*.md; fail "a dry run"; }
for part in kernels steps times rates ranks; do
  grep -q "^## $part: passed, a dry run" report/README.md || fail "$part is missing"
done
grep -q 'mock driver, nothing is measured' report/README.md || fail "what it ran on"
# No figure of a GPU comes from the mock: neither a rate nor a time of a kernel.
! grep -E '[0-9] (tokens|images|samples) \|' report/README.md || fail "a rate of the mock"
[ "$(grep -c '^| [0-9]* | \(kernel\|gemm\) | .* | - | - | - | - | - |$' report/times.md)" -ge 20 ] ||
  fail "the table of kernels"

no_gpu() { # a PATH without nvidia-smi
  mkdir -p bin
  printf '#!/bin/sh\nexit 9\n' >bin/nvidia-smi
  chmod +x bin/nvidia-smi
  PATH=$work/bin:$PATH "$root/tools/gpu-check.sh" "$@"
}
no_gpu --out none >out
[ $? = 77 ] && grep -q '^skipped: no GPU' out && [ ! -e none ] || fail "without a GPU"

# A card whose driver is missing: each part fails, and the report says why.
cat >bin/nvidia-smi <<'END'
#!/bin/sh
case "$*" in
-L) echo "GPU 0: none" ;;
*compute_cap*) echo 9.0 ;;
*) echo "a card of this test" ;;
esac
END
DNN_CUDA_LIB=/nonexistent PATH=$work/bin:$PATH DNNC_BUILD=$DNNC_BUILD \
  "$root/tools/gpu-check.sh" --out broken kernels rates >out
[ $? = 1 ] || { cat out; fail "a failure has another exit code"; }
for part in kernels rates; do
  grep -q "^## $part: FAILED" broken/README.md || { cat broken/README.md; fail "$part"; }
  grep -q "NVIDIA's driver" "broken/$part.md" || { cat "broken/$part.md"; fail "why $part failed"; }
done
grep -q "^## ranks: not run" broken/README.md || fail "a part that did not run"
echo "gpu-check.sh: 5 parts on the mock driver, 2 that fail, no figure of the mock"

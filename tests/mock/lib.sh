# lib.sh -- runs CUDA bundles on the mock GPU.  After tests/e2e/lib.sh:
# mock_ready once, mock_build DIR MODEL ... for a bundle, mock_run DIR ...
mock_ready() {
  cc -std=gnu11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$root" -o "$work/mock.so" \
    "$root"/tests/mock/*.c "$root"/support/half.c -ldl -lm -lrt || fail "the mock does not compile"
  export DNN_CUDA_LIB=$work/mock.so DNN_CUBLASLT_LIB=$work/mock.so
  export DNN_NCCL_LIB=$work/mock.so
}
# Builds for the GPU, and the same kernels for the mock.
mock_build() { # dir model options...
  local dir=$1 model=$2 source
  shift 2
  "$dnnc" build "$root/models/$model.dnn" --target cuda:sm_90 --keep-source \
    -o "$dir" --data "$root" "$@" >"$dir.log" 2>&1 || {
    grep -q NVRTC "$dir.log" && skip "no NVRTC ($(tail -n 1 "$dir.log"))"
    cat "$dir.log"
    fail "build of $model"
  }
  for source in "$dir"/source/*.cu; do
    cc -std=gnu11 -O2 -ffp-contract=off -shared -fPIC -I"$root/tests/shim" \
      -x c -o "${source%.cu}.so" "$source" -lm || fail "$source as C"
  done
}
mock_run() { # dir options...
  local dir=$1
  shift
  DNN_MOCK_KERNELS=$(echo "$dir"/source/*.so | tr ' ' ':') \
    timeout "${mock_seconds:-120}" "$dir/run" --no-save --data "$root" "$@"
}

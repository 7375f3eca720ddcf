# lib.sh -- runs CUDA bundles on the mock GPU.  The variables `root`, `dnnc` and
# `work` are set, and the functions `fail` and `skip` are there:
# mock_ready once, mock_build DIR MODEL ... for a bundle of models/MODEL.dnn,
# mock_run DIR ...
mock_target="cuda --quick" # words; the mock runs no code of NVRTC
mock_has_plain=no          # the kernels that find a value that is not finite
mock_ready() {
  cc -std=gnu11 -D_GNU_SOURCE -O2 -shared -fPIC -I"$root" -o "$work/mock.so" \
    "$root"/tests/mock/*.c "$root"/support/half.c -ldl -lm -lrt || fail "the mock does not compile"
  export DNN_CUDA_LIB=$work/mock.so DNN_CUBLASLT_LIB=$work/mock.so
  export DNN_NCCL_LIB=$work/mock.so
}
# Builds for the GPU, and the same kernels for the mock.
mock_build() { # dir model options...
  local dir=$1 model=$2
  shift 2
  # shellcheck disable=SC2086
  mock_build_file "$dir" "$root/models/$model.dnn" --target $mock_target --data "$root" "$@" || {
    grep -q NVRTC "$dir.log" && skip "no NVRTC ($(tail -n 1 "$dir.log"))"
    cat "$dir.log"
    fail "build of $model"
  }
}
# Compiles it from a file, for the architectures of --target; $dir.log says why it
# fails.
mock_build_file() { # dir file options...
  local dir=$1 source level
  "$dnnc" build "$2" --keep-source -o "$dir" "${@:3}" >"$dir.log" 2>&1 </dev/null || return 1
  [ -e "$work/mock.so" ] || return 0 # for a GPU
  for source in "$dir"/source/*.cu; do
    case $source in
    */plain_*)
      [ $mock_has_plain = yes ] || continue
      level=0 # the compiler takes longer than what it saves
      ;;
    *) level=1 ;;
    esac
    cc -std=gnu11 -O$level -ffp-contract=off -shared -fPIC -I"$root/tests/shim" \
      -x c -o "${source%.cu}.so" "$source" -lm >>"$dir.log" 2>&1 || {
      echo "$source is no C" >>"$dir.log"
      return 1
    }
  done
}
mock_run() { # dir options...
  local dir=$1
  shift
  DNN_MOCK_KERNELS=$(echo "$dir"/source/*.so | tr ' ' ':') \
    timeout "${mock_seconds:-120}" "$dir/run" --no-save --data "$root" "$@"
}
# Reads logs of DNN_MOCK_LOG: one line with how many communicators there were,
# how many of their groups had two of them, and the kinds of operations launched.
# Fails if members of a communicator launched different joined operations.
mock_launches() { # log...
  awk '
    $1 == "nccl" {
      comm = $2; rank = $4; what = $13 " " $15 " " $17
      kinds[$13]++
      stream[comm, $8] = 1
      comms[comm] = comms[comm] > $6 ? comms[comm] : $6
      if ($13 == "send" || $13 == "receive") next
      order[comm, rank] = order[comm, rank] what "\n"
    }
    END {
      for (c in comms) {
        n++
        for (r = 1; r < comms[c]; r++)
          if (order[c, r] != order[c, 0]) {
            print "members of " c " launch different operations"; wrong = 1 }
        if ((c, 1) in stream) blocking++
        if ((c, 2) in stream) bulk++
      }
      line = n + 0 " communicators, " blocking + 0 " blocking, " bulk + 0 " bulk;"
      split("all_reduce reduce_scatter all_gather broadcast send receive", names)
      for (i = 1; i <= 6; i++) if (kinds[names[i]]) line = line " " names[i] " " kinds[names[i]]
      print line
      exit wrong
    }' "$@"
}

#!/bin/bash
# gpu-check.sh [--dry-run] [--out DIR] [PART ...] -- checks and measures CUDA on
# this machine's GPU, a part of the report at a time:
#
#   kernels  every operator and emitted kernel against the interpreter, odd sizes;
#            an mlp under compute-sanitizer where that is installed
#   steps    ten steps of every model of benchmarks/systems/pairs.txt, and two of
#            them in bf16, against the CPU
#   times    each kernel of gpt2, resnet50 and a block of llama beside its limit:
#            the bandwidth of a copy, cuBLASLt alone on the same sizes
#   rates    tokens and images a second, and the share of the card's peak (MFU)
#   ranks    plans and stages on up to four ranks that share one GPU, over NCCL, and
#            two stages on two GPUs where there are two
#
# Without a part: all, in 20 minutes at most.  A part that fails or takes longer
# than its budget does not stop the others.  Each writes DIR/PART.md
# (benchmarks/gpu), and DIR/README.md joins what is there.  So parts can be run
# one at a time, also on different days.
#
# It uses build/dnnc, build/gpu_kernels and build/gpu_limits ($DNNC_BUILD in place
# of build), which may come from another machine; else it builds them.  They need
# libc alone, and NVRTC, cuBLASLt and a C compiler are found there.  --dry-run runs all parts at small sizes
# on the mock driver and measures nothing.
#
# Exit code: 0 all passed, 1 a part failed, 3 nothing to run with, 77 no GPU.
set -u
here=$PWD
cd "$(dirname "$0")/.." || exit 3
root=$PWD build=${DNNC_BUILD:-build}
all="kernels steps times rates ranks"
budget() { # seconds of a part
  case $1 in kernels) echo 240 ;; steps) echo 240 ;; times) echo 300 ;; ranks) echo 240 ;; *) echo 180 ;; esac
}

dry=${GPU_CHECK_DRY:-} out='' parts='' inside=''
while [ $# -gt 0 ]; do
  case $1 in
  --dry-run) dry=yes ;;
  --out) out=$(cd "$here" && realpath -m "${2:?"--out needs a folder"}"); shift ;;
  --inside) inside=$2; shift ;; # how a part is started
  kernels | steps | times | rates | ranks) parts="$parts $1" ;;
  *) echo "gpu-check.sh: no part '$1'; there are $all" >&2; exit 3 ;;
  esac
  shift
done
parts=${parts:-$all}

# ---- the machine ----

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; }
card() { nvidia-smi --query-gpu="$1" --format=csv,noheader | head -n 1; }
architecture() { echo "sm_$(card compute_cap | tr -d .)"; }

# find_library VARIABLE NAME: where the loader does not find a library, in the
# toolkit and in Python's packages.
find_library() {
  local found
  [ -z "${!1:-}" ] || return 0
  ldconfig -p 2>/dev/null | grep -q "$2" && return
  found=$(for dir in /usr/local/cuda/lib64 build/cuda/nvidia/*/lib $(python3 -c '
import site, glob
for base in site.getsitepackages() + [site.getusersitepackages()]:
    print(*glob.glob(base + "/nvidia/*/lib"))' 2>/dev/null); do
    ls "$dir/$2"* 2>/dev/null
  done | head -n 1)
  [ -z "$found" ] || export "$1=$found"
}

works() { [ -x "$build/dnnc" ] && [ -x "$build/gpu_kernels" ] && [ -x "$build/gpu_limits" ] &&
  "$build/dnnc" list devices >/dev/null 2>&1; }
build_all() {
  works && return
  echo "building; what the machine lacks is installed where it can be" >&2
  tools/setup.sh --cuda >&2 || true
  cmake -S . -B "$build" -G Ninja >/dev/null && ninja -C "$build" dnnc gpu_kernels gpu_limits >/dev/null
  works || {
    echo "gpu-check.sh: cannot build here; bring build/dnnc, build/gpu_kernels and" \
      "build/gpu_limits from another machine" >&2
    exit 3
  }
}

# ---- what parts share ----

fail() { echo "FAIL: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }

# The mock in place of a GPU; sets target.
open_machine() {
  dnnc=$(realpath "$build/dnnc") work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$work/cache}
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  . tests/mock/lib.sh
  if [ -n "$dry" ]; then
    mock_ready
    target=$mock_target
  else
    find_library DNN_NVRTC_LIB libnvrtc.so.1
    find_library DNN_CUBLASLT_LIB libcublasLt.so.1
    find_library DNN_NCCL_LIB libnccl.so.2
    target=cuda:$(architecture)
  fi
}
build_for_gpu() { # bundle file option...
  # shellcheck disable=SC2086
  mock_build_file "$1" "$2" --target $target --data "$root" "${@:3}" || {
    tail -n 5 "$1.log"
    return 1
  }
}
losses() { sed -n 's/.*"step":[0-9]*,"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2/p' "$1"; }
median() { sort -g | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "" }'; }

# ---- kernels ----

part_kernels() {
  local bad=0
  local -a tests=()
  # The mock takes minutes for all of them.
  [ -z "$dry" ] || { export DNN_MOCK_KERNELS=kernels; tests=(structured_integers); }
  echo '```'
  "$build/gpu_kernels" "${tests[@]}" 2>&1 | tail -n 40
  [ "${PIPESTATUS[0]}" = 0 ] || bad=1
  echo '```'
  if [ -n "$dry" ] || ! command -v compute-sanitizer >/dev/null; then
    echo "compute-sanitizer: skipped, $([ -n "$dry" ] && echo no GPU || echo not installed)"
    return $bad
  fi
  build_for_gpu "$work/mlp" benchmarks/systems/mlp.dnn || return 1
  for tool in memcheck racecheck; do
    if timeout 60 compute-sanitizer --tool $tool --error-exitcode 9 "$work/mlp/rank-0000" \
      --steps 2 --no-save --quiet >"$work/sanitizer" 2>&1; then
      echo "compute-sanitizer $tool: clean"
    else
      echo "compute-sanitizer $tool: FAILED"
      tail -n 20 "$work/sanitizer"
      bad=1
    fi
  done
  return $bad
}

# ---- steps ----

# step_row NAME TOLERANCE FILE OVERRIDE...: a line of the table; false if the
# losses or norms of ten steps differ by more.
step_row() {
  local name=$1 most=$2 file=$3 worst
  shift 3
  if ! "$dnnc" run "$file" "$@" --steps 10 --no-save --json --data "$root" \
    >"$work/cpu" 2>"$work/err" </dev/null; then
    echo "| $name | $* | fails on the CPU: $(head -n 1 "$work/err") |"
    return 1
  fi
  rm -rf "$work/bundle"
  if ! build_for_gpu "$work/bundle" "$file" "$@" >"$work/err" ||
    ! mock_run "$work/bundle" --steps 10 --json >"$work/gpu" 2>"$work/err" </dev/null; then
    echo "| $name | $* | FAILED: $(head -n 1 "$work/err") |"
    return 1
  fi
  worst=$(paste -d' ' <(losses "$work/cpu") <(losses "$work/gpu") | awk -v most="$most" '
    NF != 4 { bad = 1 }
    { for (i = 1; i <= 2; i++) { d = ($i - $(i + 2)) / ($i == 0 ? 1 : $i)
        if (d < 0) d = -d
        if (!(d <= worst)) worst = d } }
    END { printf "%.1e", worst; exit bad || NR != 10 || !(worst <= most) }')
  local differs=$?
  echo "| $name | $* | $worst of $most$([ $differs = 0 ] || echo ' DIFFERS') |"
  return $differs
}

part_steps() {
  local bad=0 n=0 kind name file overrides
  echo "Ten steps from one seed: the largest relative difference of a loss or gradient norm"
  echo "between GPU and CPU, and what is allowed."
  echo
  echo "| model | sizes | difference |"
  echo "|---|---|---|"
  while read -r kind name file overrides; do
    [ "$kind" = model ] || continue
    [ -z "$dry" ] || case $name in mlp | lenet | gpt) ;; *) continue ;; esac
    # shellcheck disable=SC2086 # overrides are words
    step_row "$name" 1e-4 "$file" $overrides || bad=1
    n=$((n + 1))
  done <benchmarks/systems/pairs.txt
  if [ -z "$dry" ]; then
    step_row gpt-bf16 2e-2 benchmarks/systems/gpt.dnn precision.compute=bf16 || bad=1
    step_row moe-bf16 2e-2 benchmarks/systems/moe.dnn precision.compute=bf16 || bad=1
  fi
  [ $n -ge "$([ -n "$dry" ] && echo 3 || echo 10)" ] || { echo "only $n models"; bad=1; }
  return $bad
}

# ---- times and rates ----

# The models that are measured: name, file, sizes; samples in a step; the unit.
measured_models() {
  if [ -n "$dry" ]; then
    echo "gpt benchmarks/systems/gpt.dnn 8 samples"
    return
  fi
  echo "gpt2 models/gpt2.dnn $((8 * 1024)) tokens B=8"
  echo "gpt2-50304 models/gpt2.dnn $((8 * 1024)) tokens B=8 V=50304"
  echo "llama-block models/llama.dnn 2048 tokens B=1 T=2048 L=1 V=1024"
  echo "resnet50 models/resnet50.dnn 32 images N=32"
}

part_times() {
  local bad=0 name file samples unit overrides
  while read -r name file samples unit overrides; do
    [ "$name" != gpt2-50304 ] || continue # but for one matmul as gpt2
    echo "### $name $overrides"
    echo
    rm -rf "$work/bundle" "$work/profile"
    # shellcheck disable=SC2086
    if ! build_for_gpu "$work/bundle" "$file" $overrides eval_every=0 ||
      ! DNN_CUDA_PROFILE=$work/profile mock_seconds=90 mock_run "$work/bundle" --steps 4 --quiet \
        2>"$work/err" >"$work/log" </dev/null; then
      echo "FAILED: $(head -n 3 "$work/err")"
      bad=1
      continue
    fi
    # shellcheck disable=SC2086
    python3 tools/gpu_table.py "$work/profile" ${dry:+dry} >"$work/sizes" &&
      timeout 60 "$build/gpu_limits" ${dry:+1000000} <"$work/sizes" >"$work/limits" \
        2>"$work/err" && [ "$(wc -l <"$work/limits")" = $(($(wc -l <"$work/sizes") + 1)) ] &&
      python3 tools/gpu_table.py "$work/profile" "$work/limits" ${dry:+dry} || {
      echo "FAILED: $(head -n 3 "$work/err")"
      bad=1
    }
    [ -n "$dry" ] && echo "skipped: no GPU, nothing was measured" ||
      echo "Copy: $(head -n 1 "$work/limits")"
    echo
  done <<<"$(measured_models)"
  echo "The limit of a matmul is the time of cuBLASLt alone on the same size, untransposed; of all"
  echo "else the bytes of the operator's cost rule over the bandwidth of a copy, or its products at"
  echo "the rate of the fastest of these matmuls and one of 4096 x 4096 x 4096, whichever takes"
  echo "longer.  A time is the median of a launch in four steps, without what the events around it"
  echo "take."
  return $bad
}

# Dense products of 16-bit floats, FLOP/s, as NVIDIA's data sheets have them.
peak() {
  case $1 in
  *H100*PCIe*) echo 756e12 ;;
  *H100* | *H200*) echo 989e12 ;;
  *A100*) echo 312e12 ;;
  *B200*) echo 2250e12 ;;
  esac
}

# peer_ms NAME: milliseconds of a step in PyTorch; nothing where it is not there or
# has no such model.
peer_ms() {
  case $1 in
  gpt2* | resnet50) timeout 60 python3 benchmarks/peers/torch_gpu.py "$1" 2>/dev/null ;;
  esac
}

part_rates() {
  local bad=0 name file samples unit overrides ms flops most=''
  [ -n "$dry" ] || most=$(peak "$(card name)")
  echo "MFU = flops_step of \`dnnc check\` (2 for each multiply and add, forward and backward, no"
  echo "recomputation) / seconds of a step / peak of dense products of 16-bit floats (${most:-unknown} FLOP/s)."
  echo
  echo "PyTorch: \`benchmarks/peers/torch_gpu.py\`, eager, the same sizes and precision; the share is"
  echo "our time over its time."
  echo
  echo "| model | sizes | ms a step | a second | MFU | PyTorch ms | share |"
  echo "|---|---|---|---|---|---|---|"
  while read -r name file samples unit overrides; do
    rm -rf "$work/bundle"
    # shellcheck disable=SC2086
    flops=$("$dnnc" check "$file" $overrides --json 2>/dev/null | grep -o '"flops_step":[0-9]*' | cut -d: -f2)
    # shellcheck disable=SC2086
    if ! build_for_gpu "$work/bundle" "$file" $overrides eval_every=0 >"$work/err" ||
      ! mock_seconds=50 mock_run "$work/bundle" --steps 13 --json >"$work/gpu" 2>"$work/err" </dev/null; then
      echo "| $name | $overrides | FAILED: $(head -n 1 "$work/err") | | | | |"
      bad=1
      continue
    fi
    ms=$(grep -o '"ms":[^,}]*' "$work/gpu" | cut -d: -f2 | tail -n +4 | median)
    if [ -z "$ms" ] || [ -z "$flops" ]; then
      echo "| $name | $overrides | FAILED: no time or FLOPs | | | | |"
      bad=1
    elif [ -n "$dry" ]; then
      echo "| $name | $overrides | skipped: no GPU | | | | |"
    else
      awk -v ms="$ms" -v peer="$(peer_ms "$name")" -v n="$samples" -v unit="$unit" -v flops="$flops" -v most="${most:-0}" \
        -v name="$name" -v sizes="$overrides" 'BEGIN {
          mfu = most > 0 ? sprintf("%.1f %%", 100 * flops / (ms * 1e-3) / most) : "-"
          printf "| %s | %s | %.2f | %.0f %s | %s | %s | %s |\n", name, sizes, ms,
            n / ms * 1e3, unit, mfu, peer == "" ? "-" : peer,
            peer == "" ? "-" : sprintf("%.2f", ms / peer) }'
    fi
  done <<<"$(measured_models)"
  return $bad
}

# ---- ranks ----

part_ranks() {
  command -v mpirun >/dev/null || skip "no mpirun"
  export DNN_CUDA_SHARE=1
  [ -n "$dry" ] || export DNNC_GPU_ARCH=${target#cuda:}
  echo "Ranks share one GPU, each a host of its own for NCCL (NCCL_HOSTID): 20 steps against one"
  echo "rank on the CPU."
  echo
  echo '```'
  local code=0 two_stages='pipe_mlp mlp'
  if [ -n "$dry" ]; then
    for pair in uneven_batch "$two_stages"; do
      DNN_MOCK_DEVICES=1 benchmarks/systems/run.sh "$dnnc" mock-short "$pair" 2>&1 || code=1
    done
  else
    benchmarks/systems/run.sh "$dnnc" gpu 2>&1 || code=1
  fi
  echo '```'
  [ -z "$dry" ] && [ "$(nvidia-smi -L | wc -l)" -gt 1 ] || return $code
  echo
  echo "Two stages, each on a GPU of its own:"
  echo
  echo '```'
  env -u DNN_CUDA_SHARE benchmarks/systems/run.sh "$dnnc" gpu "$two_stages" 2>&1 || code=1
  echo '```'
  return $code
}

# ---- one part, and all ----

if [ -n "$inside" ]; then
  open_machine
  "part_$inside"
  exit
fi

if [ -z "$dry" ] && ! has_gpu; then
  echo "skipped: no GPU (nvidia-smi finds none)"
  exit 77
fi
build_all
[ -n "$out" ] || out=$([ -n "$dry" ] && mktemp -d || echo benchmarks/gpu)
mkdir -p "$out" || exit 3
machine="$([ -n "$dry" ] && echo "mock driver, nothing is measured" ||
  echo "$(card name), driver $(card driver_version), $(card memory.total)"); $(
  git describe --always --dirty 2>/dev/null || echo "no commit"); $(date -u +%Y-%m-%d)"

bad=0
for part in $parts; do
  begin=$(date +%s)
  body=$(mktemp)
  GPU_CHECK_DRY=$dry timeout -k 10 "$(budget "$part")" bash tools/gpu-check.sh --inside "$part" >"$body" 2>&1
  code=$?
  case $code in
  0) verdict=passed${dry:+, a dry run} ;;
  77) verdict=skipped ;;
  124 | 137) verdict="FAILED, stopped after $(budget "$part") s" ;;
  *) verdict=FAILED ;;
  esac
  case $verdict in FAILED*) bad=1 ;; esac
  {
    echo "## $part: $verdict"
    echo
    echo "$machine; $(($(date +%s) - begin)) s"
    echo
    cat "$body"
  } >"$out/$part.md"
  rm -f "$body"
  echo "$part: $verdict ($(($(date +%s) - begin)) s)"
done

{
  echo "# Checks and measurements on a GPU"
  echo
  for part in $all; do
    [ -e "$out/$part.md" ] || { printf '## %s: not run\n\n' "$part"; continue; }
    cat "$out/$part.md"
    echo
  done
} >"$out/README.md"
echo "report: $out/README.md"
exit $bad

#!/bin/bash
# run.sh DNNC [short|all|mock-short|mock|gpu [WORD]] -- checks the pairs of pairs.txt,
# a line each, or those whose line has the word.
#
# `dnnc verify` plays every pair in exact mode and in f64.  Those that train
# make 20 steps over MPI: each loss, gradient norm and validation loss must be
# within 1e-5 relative of one rank's, at the end replicas are equal bit for bit, and
# on every rank the highest byte touched is the last one of the arena, but for scratch
# of a library.
#
# `mock` compiles the kernels of every pair for all architectures of CUDA, and the
# ranks make 20 steps on the mock GPU and its NCCL (tests/mock), then 5 steps
# with streams that run ahead and blocks in another order.  Losses and norms are
# compared with one rank on the CPU: within 1e-5 relative, in 16 bits as below.
# `mock-short` takes the pairs that `short` trains, both compiled quickly, but for
# convolutions in stages, and `gpu` those that have at most four ranks, on the GPUs of
# this machine, whose architecture $DNNC_GPU_ARCH names; with DNN_CUDA_SHARE=1 ranks
# share GPUs.
set -u
dnnc=$(readlink -f "$1") half=${2:-all} word=${3:-} quick=
[ "$half" != short ] || quick=--quick
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
declare -A models
fail() {
  echo "FAIL: $*" >&2
  exit 1
}

# In `mock` half is neither of the two, and all pairs are chosen.
is_chosen() { [ "$1" = short ] || { [ "$1" = long ] && [ "$half" != short ]; }; }

# count_ranks PLAN: the product of the mesh, or one more than the highest rank of a stage or place.
count_ranks() {
  sed 's/#.*//; s/[;{}]/\n&\n/g' "$1" | awk '
    BEGIN { n = 1 }
    /^mesh/ { m = 1 }
    /^}/ { m = 0 }
    m && $2 == "=" { n *= $3 }
    !m && ($1 == "stage" || $1 == "place") && match($0, / on .*[0-9]/) {
      ranks = substr($0, RSTART, RLENGTH)
      sub(/ as .*/, "", ranks)
      sub(/.*[^0-9]/, "", ranks)
      if (ranks + 1 > n) n = ranks + 1 }
    END { print n }'
}

# check_plan MODEL ...: sets exact and f64, and says what is wrong.
check_plan() {
  exact=refused f64=-
  "$dnnc" verify "$@" --json >verify.json 2>err.txt </dev/null
  local code=$?
  if [ ! -s verify.json ]; then
    sed 's/^/  /' err.txt
    return 1
  fi
  f64=$(grep -o '"max_rel_error":[^,}]*' verify.json | cut -d: -f2)
  exact=equal
  [ $code = 0 ] && return
  exact=differs
  sed 's/"guarantee":"[^"]*",//; s/^/  /' verify.json
  return 1
}

# losses MODEL ...: a line per step with loss and norm, and one per evaluation.
losses() {
  DNN_POISON=1 "$dnnc" run "$@" $quick --steps 20 --no-save --json >out.json 2>err.txt </dev/null || {
    sed 's/^/  /' err.txt >&2
    return 1
  }
  read_losses out.json
}
read_losses() {
  sed -n -e 's/.*"step":[0-9]*,"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2/p' \
    -e 's/.*"validation_loss":\([0-9][^,]*\),.*/\1 \1/p' "$1"
}
has_equal_replicas() {
  grep -o '"parameters_sha256":\[[^]]*' "$1" | cut -d[ -f2 | tr , '\n' |
    sort -u | wc -l | grep -qx 1
}

# is_arena_touched PLAN MODEL ...: what every rank of out.json planned is what it used,
# but for scratch of a library that lies at the end, of which the library may use less.
is_arena_touched() {
  local planned touched scratch plan=$1
  shift
  planned=$(sed -n 's/.*"arena_bytes":\[\([^]]*\)\].*/\1/p' out.json)
  touched=$(sed -n 's/.*"arena_touched_bytes":\[\([^]]*\)\].*/\1/p' out.json)
  [ -n "$touched" ] && [ "$touched" = "$planned" ] && return
  scratch=$("$dnnc" show "$plan" --model "$@" --json |
    sed -n 's/.*"most_workspace":\([0-9]*\).*/\1/p')
  paste -d , <(tr , '\n' <<<"$planned") <(tr , '\n' <<<"$touched") |
    awk -F , -v scratch="${scratch:-0}" '
      NF != 2 || $2 > $1 || $2 + scratch < $1 { bad = 1 } END { exit bad }' && return
  echo "  arenas of $planned bytes, touched up to $touched, scratch of libraries $scratch"
  return 1
}

# check_training PLAN MODEL ...: sets worst and replicas.  A run whose ranks store
# different replicas of a tensor ends with a fault.
check_training() {
  local plan=$1 one is_near
  shift
  worst=failed replicas=-
  one=one-$(printf '%s ' "$@" | tr -c 'a-zA-Z0-9\n' _).txt
  [ -s "$one" ] || losses "$@" >"$one" || return 1
  losses "$@" --plan "$plan" >many.txt || return 1
  worst=$(paste -d ' ' "$one" many.txt | awk '
    NF != 4 || /[^-+.0-9e ]/ { bad = 1 }
    { for (i = 1; i <= 2; i++) {
        d = ($i - $(i + 2)) / ($i == 0 ? 1 : $i)
        if (d < 0) d = -d
        if (!(d <= worst)) worst = d } }
    END { printf "%.1e", worst
          exit bad || NR < 20 || !(worst <= 1e-5) }')
  is_near=$?
  replicas=differ
  has_equal_replicas out.json && replicas=equal
  is_arena_touched "$plan" "$@" && [ $is_near = 0 ] && [ $replicas = equal ]
}

# tolerance MODEL ...: of a loss, by the narrowest dtype that is asked for.
tolerance() {
  case "$*" in *=bf16*) echo 2e-2 ;; *=f16*) echo 2e-3 ;; *) echo 1e-5 ;; esac
}

# worst_difference ONE MANY TOLERANCE LEAST: of losses and norms in lines; the
# second file may have fewer lines, but not fewer than LEAST.
worst_difference() {
  paste -d ' ' "$1" "$2" | awk -v most="$3" -v least="$4" '
    NF == 2 && NR > least { next }
    NF != 4 || /[^-+.0-9e ]/ { bad = 1 }
    { n++
      for (i = 1; i <= 2; i++) {
        d = ($i - $(i + 2)) / ($i == 0 ? 1 : $i)
        if (d < 0) d = -d
        if (!(d <= worst)) worst = d } }
    END { printf "%.1e", worst
          exit bad || n < least || !(worst <= most) }'
}

# run_mock STEPS NAME: trains the bundle on the mock; losses in NAME.txt.
run_mock() {
  rm -f "$2.log"
  DNN_MOCK_DEVICES=16 DNN_MOCK_LOG=$work/$2.log mock_seconds=300 mock_run "$work/bundle" --steps "$1" --json \
    >"$2.json" 2>"$2.err" </dev/null && ! grep -q 'mock:' "$2.err" || {
    sed 's/^/  /' "$2.err"
    return 1
  }
  read_losses "$2.json" >"$2.txt"
}

# check_mock PLAN MODEL ...: sets worst, eager, replicas and launches.
check_mock() {
  local plan=$1 one target=cuda most
  shift
  worst=failed eager=- replicas=- launches=-
  one=one-$(printf '%s ' "$@" | tr -c 'a-zA-Z0-9\n' _).txt most=$(tolerance "$@")
  [ -s "$one" ] || losses "$@" >"$one" || return 1
  [ "$half" = mock-short ] && target=$mock_target
  [ "$half" = gpu ] && target=cuda:${DNNC_GPU_ARCH:-sm_90}
  rm -rf bundle
  # shellcheck disable=SC2086
  mock_build_file bundle "$@" --plan "$plan" --target $target || {
    sed 's/^/  /' bundle.log
    return 1
  }
  run_mock 20 late || return 1
  worst=$(worst_difference "$one" late.txt "$most" 20) || return 1
  replicas=differ
  has_equal_replicas late.json || return 1
  replicas=equal
  [ "$half" = gpu ] && return
  launches=$(mock_launches late.log) || return 1
  DNN_MOCK_EAGER=1 DNN_MOCK_SEED=7 run_mock 5 eager || return 1
  # An evaluation comes after the last step of each, so only steps are compared.
  eager=$(worst_difference "$one" <(head -n 5 eager.txt) "$most" 5) || return 1
}

case $half in mock* | gpu) is_cuda=yes ;; *) is_cuda=no ;; esac
if [ $is_cuda = yes ]; then
  . "$root/tests/mock/lib.sh"
  [ "$half" = gpu ] || mock_ready
  row='%-5s %-19s %-8s %5s %8s %8s %-8s %7s  %s\n'
  # shellcheck disable=SC2059 # the format is above
  printf "$row" '' plan model ranks late eager replicas seconds 'sizes; launches'
else
  row='%-5s %-19s %-8s %5s %-7s %8s %8s %-8s %7s  %s\n'
  # shellcheck disable=SC2059
  printf "$row" '' plan model ranks exact f64 losses replicas seconds sizes
fi
while read -r verify train plan model overrides; do
  case $verify in
  '' | '#'*) continue ;;
  model)
    models[$train]="$plan $model $overrides"
    continue
    ;;
  esac
  if [ "$half" = mock-short ] || [ "$half" = gpu ]; then
    [ "$train" = short ] || continue
  else
    is_chosen "$verify" || { [ "$verify" = - ] && is_chosen "$train"; } || continue
  fi
  case "$plan $model $overrides " in *"$word"*) ;; *) continue ;; esac
  # Convolutions of ranks that wait for each other take long on the mock.
  case $half:$plan:$model in mock-short:pipe_*:lenet | mock-short:pipe_*:resnet | mock-short:pipe_*:unet* | mock-short:place_*:inception) continue ;; esac
  [ "$half" = gpu ] && [ "$(count_ranks "$root/benchmarks/plans/$plan.plan")" -gt 4 ] && continue
  file=$root/benchmarks/plans/$plan.plan begin=$EPOCHREALTIME status=ok
  # shellcheck disable=SC2086 # overrides are words
  set -- $root/${models[$model]} $overrides
  if [ $is_cuda = yes ]; then
    check_mock "$file" "$@" || status=WRONG
    set -- "$worst" "$eager" "$replicas"
    overrides="${overrides:+$overrides; }$launches"
  else
    exact=- f64=- worst=- replicas=-
    [ "$verify" = - ] || check_plan "$@" --plan "$file" || status=WRONG
    if [ $status = ok ] && is_chosen "$train"; then
      check_training "$file" "$@" || status=WRONG
    fi
    set -- "$exact" "$f64" "$worst" "$replicas"
  fi
  # shellcheck disable=SC2059
  printf "$row" $status "$plan" "$model" "$(count_ranks "$file")" "$@" \
    "$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $begin }")" "$overrides" | tee -a table.txt
done <"$root/benchmarks/systems/pairs.txt"

touch table.txt
if [ $is_cuda = yes ]; then
  awk '{ n++; wrong += $1 != "ok"
         if (/=b?f16/) { if ($5 + 0 > half) half = $5 + 0; n_half++ }
         else { if ($5 + 0 > worst) worst = $5; if ($6 + 0 > worst) worst = $6 }
         for (i = 1; i < NF; i++) if ($i ~ /^(all_|reduce_|broadcast|send|receive)/) { kinds[$i] += $(i + 1); any = 1 } }
       END {
         printf "%d pairs on '"$([ "$half" = gpu ] && echo GPUs || echo "the mock GPU")"', worst relative difference %s", n, worst + 0
         if (n_half) printf ", of %d in 16 bits %s", n_half, half
         if (any) printf "; launches:"
         split("all_reduce reduce_scatter all_gather broadcast send receive", names)
         for (i = 1; any && i <= 6; i++) printf " %s %d", names[i], kinds[names[i]]
         printf "; %d wrong\n", wrong
         exit n == 0 || wrong > 0 }' table.txt
  exit
fi
awk '{ n++; wrong += $1 != "ok"; verified += $5 == "equal"; trained += $8 == "equal"
       if ($6 + 0 > f64) f64 = $6
       if ($7 + 0 > worst) worst = $7 }
     END {
       printf "%d pairs verified, worst f64 difference %s; ", verified, f64 + 0
       printf "%d trained, worst relative difference %s; %d wrong\n", trained, worst + 0, wrong
       exit n == 0 || wrong > 0 }' table.txt

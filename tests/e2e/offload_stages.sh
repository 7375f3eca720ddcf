#!/bin/bash
# A plan of stages with "offload" changes no bit, under each kind of schedule, on 2 and 4 ranks:
# over MPI losses and parameters after four steps are those of the plan without the line, on threads
# whose ranks are late at random the parameters and the optimizer state.  `verify` finds that the peak
# of both memories is the highest byte touched, and runs touch what is predicted, but for scratch of a kernel that may
# end an arena.  Every rank needs less of the device, most at most 60 %.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "no mpirun"
# Scratch of oneDNN, which offload leaves where it is, depends on the instructions of the processor.
export ONEDNN_MAX_CPU_ISA=AVX2
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
SCRATCH=1024

# A compiler that links stage_matrix.c in front of a program.
real=$(command -v "${CC:-cc}")
"$real" -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -c -o matrix.o "$root/tests/e2e/stage_matrix.c" ||
  fail "cannot compile the harness"
cat >matrix-cc <<END
#!/bin/sh
case " \$* " in
*libdnnrank.a*) exec "$real" -Wl,--wrap=rank_main "$work/matrix.o" "\$@" ;;
esac
exec "$real" "\$@"
END
chmod +x matrix-cc

list() { tail -n 1 out.json | grep -o "\"$1\":\[[^]]*" | cut -d[ -f2 | tr , ' '; }
run() { # PLAN, then MODEL and sizes
  DNN_POISON=1 "$dnnc" run "${@:2}" --plan "$1" --data "$root" --quick --json \
    --steps 4 --no-save eval_batches=2 >out.json 2>err </dev/null || { cat "$1" err; return 1; }
  losses=$(grep -o '"loss":[^,}]*' out.json) digest=$(list parameters_sha256)
  arenas=$(list arena_bytes) touched=$(list arena_touched_bytes)
  host=$(list host_arena_bytes) host_touched=$(list host_arena_touched_bytes)
}
threads() { # PLAN, then MODEL and sizes: what ranks on threads keep
  CC=$work/matrix-cc "$dnnc" build "${@:2}" --plan "$1" --quiet -o case 2>err || { cat err; return 1; }
  timeout 60 case/rank-0000 threads 7 2>err | sort -V || { cat err; return 1; }
}
ranks=0 large=0
pair() { # NAME, LINES, MODEL and sizes; without.plan has run
  { grep -v '^}' without.plan && printf '  offload %s\n}\n' "$2"; } >with.plan
  run with.plan "${@:3}" || fail "$1: run"
  [ -n "$digest" ] && [ "$losses" = "$losses0" ] && [ "$digest" = "$digest0" ] ||
    fail "$1: other losses or parameters: $losses, not $losses0"
  [ -n "$host" ] && [ "$host" = "$host_touched" ] || fail "$1: host memory $host, touched $host_touched"
  "$dnnc" show with.plan --model "${@:3}" --json >show.json 2>err || { cat err; fail "$1: show"; }
  [ "$(grep -o '"host_arena":[0-9]*' show.json | cut -d: -f2 | tr '\n' ' ')" = "$host " ] || fail "$1: show, not $host"
  read -ra before <<<"$arenas0"
  read -ra now <<<"$arenas"
  read -ra reached <<<"$touched"
  for r in "${!now[@]}"; do
    [ "${reached[r]}" -le "${now[r]}" ] && [ $((now[r] - reached[r])) -le $SCRATCH ] ||
      fail "$1: rank $r has an arena of ${now[r]}, touched ${reached[r]}"
    [ "${now[r]}" -lt "${before[r]}" ] || fail "$1: rank $r has an arena of ${now[r]}, without ${before[r]}"
    ranks=$((ranks + 1))
    [ $((now[r] * 10)) -gt $((before[r] * 6)) ] || large=$((large + 1))
  done
  echo "$1: equal; arenas $arenas of $arenas0, host memory $host"
}
check() { # MODEL and sizes: the player, and ranks on threads
  "$dnnc" verify "$@" --plan with.plan >verified 2>err || { cat verified err; fail "verify"; }
  grep -q '^memory: nothing is overwritten early, and the peak is the highest byte touched' verified ||
    { cat verified; fail "the memory of a plan"; }
  threads without.plan "$@" >a && threads with.plan "$@" >b || fail "on threads"
  [ -s a ] && cmp -s a b || { diff a b; fail "other bits on threads"; }
}
plan() { # SCHEDULE MICROBATCHES STAGE..., then MODEL and sizes behind --
  local n=0
  printf 'plan {\n  schedule = %s\n  microbatches = %s\n' "$1" "$2" >without.plan
  shift 2
  for (( ; ; n++)); do
    [ "$1" = -- ] && break
    echo "  $1" >>without.plan
    shift
  done
  echo '}' >>without.plan
  shift
  run without.plan "$@" || fail "without offload"
  losses0=$losses digest0=$digest arenas0=$arenas
}

matrices="block.attn.wq, block.attn.wk, block.attn.wv, block.attn.wo, block.mlp.w1, block.mlp.w2"
gpt=("$root/models/chargpt.dnn" B=8 T=32 C=32 H=2)
two=('stage 0: wte, wpe, block[0] on 0' 'stage 1: block[1], norm on 1')
four=('stage 0: wte, wpe, block[0] on 0' 'stage 1: block[1] on 1' 'stage 2: block[2] on 2' 'stage 3: block[3], norm on 3')
plan 1f1b 4 "${two[@]}" -- "${gpt[@]}" L=2
pair "gpt, 2 stages, 1f1b, saved values" block "${gpt[@]}" L=2
pair "gpt, 2 stages, 1f1b, parameters" "$matrices" "${gpt[@]}" L=2
pair "gpt, 2 stages, 1f1b, optimizer state" optimizer "${gpt[@]}" L=2
pair "gpt, 2 stages, 1f1b, all" "block, $matrices, wte, optimizer" "${gpt[@]}" L=2
check "${gpt[@]}" L=2
plan gpipe 8 "${four[@]}" 'keep block' -- "${gpt[@]}" L=4
pair "gpt, 4 stages, gpipe" "block, $matrices, wte, optimizer" "${gpt[@]}" L=4
plan zbh1 8 "${four[@]}" -- "${gpt[@]}" L=4
pair "gpt, 4 stages, zbh1" "block, $matrices, wte, optimizer" "${gpt[@]}" L=4
check "${gpt[@]}" L=4
plan 'interleaved(v = 2)' 4 "${four[0]}" "${four[1]}" "${four[2]/on 2/on 0}" "${four[3]/on 3/on 1}" -- "${gpt[@]}" L=4
pair "gpt, 4 stages on 2 ranks, interleaved" "block, $matrices, wte, optimizer" "${gpt[@]}" L=4
check "${gpt[@]}" L=4

vgg=("$root/models/vgg16.dnn" N=64 side=32 F=32 K=10 width=8 "depths=[1,1,1,1,1]")
plan 1f1b 4 'stage 0: unit[0..2] on 0' 'stage 1: unit[3..4], linear on 1' -- "${vgg[@]}"
pair "vgg16, 2 stages, 1f1b" "unit, x, unit.conv2d.w, linear.w, optimizer" "${vgg[@]}"
plan zbh1 4 'stage 0: unit[0] on 0' 'stage 1: unit[1] on 1' 'stage 2: unit[2..3] on 2' 'stage 3: unit[4], linear on 3' \
  -- "${vgg[@]}"
pair "vgg16, 4 stages, zbh1" "unit, x, unit.conv2d.w, linear.w, optimizer" "${vgg[@]}"
check "${vgg[@]}"
[ $((large * 2)) -ge $ranks ] || fail "$large of $ranks arenas fall by 40 %"
echo "$large of $ranks arenas fall by at least 40 %"

#!/bin/bash
# Every schedule ends on 2 and 4 ranks, for each number of micro-batches up to
# twice as many that it accepts: on threads whose sends wait for their receives, and over MPI,
# with ranks that are delayed at random, and with equal results.  A fourth of
# the cases send messages of 4 MB; in a third of those with a stage a rank, stages have
# two ranks and one in turn.  Half of them do not clip, so that zbh2 and its like update early.
#   stage_matrix.sh DNNC [CASES [SEED [FIRST]]]        6 cases by default, and 2 that are drawn; `all` for all
#   stage_matrix.sh DNNC drawn [CASES [SEED [FIRST]]]  200 cases by default
# A seed has an order of all cases, which begins anew after the last; `48 1 25` goes
# on with case 25.  `drawn` draws schedules, 2 to 4 groups, stages a group, up to 3p
# micro-batches, meshes, the order of groups and how late ranks are.  A case takes about
# 4 s, and each run has a limit of 60 s.
. "$(dirname "$0")/lib.sh"
drawn=no
if [ "${2:-}" = drawn ]; then
  drawn=yes
  set -- "$1" "${3:-200}" "${@:4}"
fi
cases=${2:-6} seed=${3:-1} first=${4:-1}
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
limit=60
has_mpi && mpi=yes || mpi=no

# A compiler that links the harness in front of a program.
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

# Lines "schedule p m stages" of all cases.
all_cases() {
  local schedule p m stages
  for schedule in $(schedules); do
    for p in 2 4; do
      for m in $(seq $((2 * p))); do
        stages=$("$dnnc" schedule "$schedule" --ranks "$p" --microbatches "$m" 2>err |
          sed -n 's/^[0-9]* ranks, \([0-9]*\) stages, .*/\1/p')
        if [ -n "$stages" ]; then echo "$schedule $p $m $stages"; else grep -q ' needs ' err || return 1; fi
      done
    done
  done
}
# The cases in the order of a round of the seed.
combinations() { shuf --random-source=<(yes "$seed $1") combinations.txt; }
schedules() { "$dnnc" list schedules | grep -v 'not supported yet\|^pipedream' | sed -n 's/^\([a-z0-9]*\).*/\1/p'; }

# run NAME COMMAND...: ends in time, and every rank says what it has.
run() {
  local name=$1
  shift
  timeout -k 5 $limit "$@" >"$name.out" 2>"$name.err" </dev/null ||
    { cat "$name.err"; fail "case $i, $what, $name: exit $?"; }
  sort -o "$name.out" "$name.out"
  [ "$(grep -c '^rank' "$name.out")" = "$ranks" ] || fail "case $i, $what, $name: a rank is silent"
}

# draw N: a number below N, in $number.
draw() {
  state=$(((state * 1103515245 + 12345) & 0x7fffffff))
  number=$(((state >> 12) % $1))
}

# draw_shape: schedule, p, m and stages, drawn until the schedule accepts them.
draw_shape() {
  local names
  mapfile -t names < <(schedules)
  while :; do
    draw ${#names[@]} && schedule=${names[number]}
    draw 3 && p=$((2 + number))
    draw $((3 * p)) && m=$((1 + number))
    draw 3
    case $schedule in interleaved | bfs | zb1p) schedule="$schedule(v = $((1 + number)))" ;; esac
    stages=$("$dnnc" schedule "$schedule" --ranks "$p" --microbatches "$m" 2>err |
      sed -n 's/^[0-9]* ranks, \([0-9]*\) stages, .*/\1/p')
    [ -n "$stages" ] && return
    grep -q ' needs ' err || { cat err; fail "case $i: $schedule of $p groups, $m micro-batches"; }
  done
}

# draw_case: case.plan, sizes, ranks, late and what.
draw_case() {
  local group of_stage k axis size places=() tensors=no
  state=$((seed * 7919 + i))
  draw 1000
  draw_shape
  ranks=0
  for group in $(seq 0 $((p - 1))); do
    draw 4
    case $number in 0) axis=data size=2 ;; 1) axis=tensor size=2 ;; *) axis=data size=1 ;; esac
    [ "$axis" = data ] || tensors=yes
    places[group]="$ranks..$((ranks + size - 1)) as ($axis = $size)"
    ranks=$((ranks + size))
  done
  draw "$p" && turn=$number
  {
    printf 'plan {\n  schedule = %s\n  microbatches = %d\n' "$schedule" "$m"
    [ $tensors = no ] || echo '  shard C over tensor'
    for k in $(seq 0 $((stages - 1))); do
      of_stage=$((k % p))
      case $schedule in zbv | vhalf | vmin | dualpipev) [ "$k" -lt "$p" ] || of_stage=$((2 * p - 1 - k)) ;; esac
      printf '  stage %d: %sunit[%d] on %s\n' "$k" "$([ "$k" != 0 ] || echo 'head, ')" "$k" \
        "${places[(of_stage + turn) % p]}"
    done
    echo '}'
  } >case.plan
  sizes="B=$((2 * m)) C=16" bytes=64
  draw 4
  [ "$number" != 0 ] || sizes="B=$((4 * m)) C=262144" bytes=4194304
  draw 4 && late=$((1000 << number))
  draw 4 && late="$late $((2 + 2 * number))"
  what="$schedule, $stages stages on $ranks ranks, $m micro-batches, messages of $bytes bytes"
}

# make_case: likewise, of the list of all.
make_case() {
  local round=$(((i - 1) / n)) at=$(((i - 1) % n + 1)) k size paths
  read -r schedule p m stages < <(combinations $round | sed -n "${at}p")
  sizes="B=$m C=16" bytes=64
  [ $((i % 4)) = 0 ] && sizes="B=$((4 * m)) C=262144" bytes=4194304
  what="$schedule, $stages stages on $p ranks, $m micro-batches, messages of $bytes bytes"
  ranks=$p
  if [ "$stages" = "$p" ] && [ $((i % 3)) = 0 ]; then
    sizes="B=$((4 * m)) C=${sizes##*=}" what="$what, stages of two ranks and one" ranks=0
    {
      printf 'plan {\n  schedule = %s\n  microbatches = %d\n' "$schedule" "$m"
      for k in $(seq 0 $((p - 1))); do
        size=$((2 - k % 2)) paths="unit[$k]"
        [ "$k" != 0 ] || paths="head, unit[0]"
        printf '  stage %d: %s on %d..%d as (data = %d)\n' "$k" "$paths" $ranks $((ranks + size - 1)) $size
        ranks=$((ranks + size))
      done
      echo '}'
    } >case.plan
  else
    {
      printf 'mesh { pipe = %d }\nplan {\n  schedule = %s\n  microbatches = %d\n' "$p" "$schedule" "$m"
      for k in $(seq 0 $((stages - 2))); do printf '  cut after unit[%d]\n' "$k"; done
      echo '}'
    } >case.plan
  fi
  late=
}

runs=0 large=0 begin=$(date +%s)
if [ $drawn = no ]; then
  all_cases >combinations.txt && [ -s combinations.txt ] || { cat err; fail "a schedule is not made"; }
  n=$(wc -l <combinations.txt)
  [ "$cases" = all ] && cases=$n
fi
for i in $(seq "$first" "$cases"); do
  if [ $drawn = yes ]; then draw_case; else make_case; fi
  # shellcheck disable=SC2086 # sizes are words
  CC=$work/matrix-cc "$dnnc" build "$root/tests/e2e/stage_matrix.dnn" $sizes L=$stages --plan case.plan \
    clip=$((i / 3 % 2)) --quiet -o case 2>err || { cat case.plan err; fail "case $i, $what: not built"; }
  # shellcheck disable=SC2086 # and what delays
  run threads case/rank-0000 threads $i $late
  runs=$((runs + 1)) large=$((large + (bytes > 64)))
  [ $mpi = no ] && continue
  run mpi mpirun --oversubscribe --bind-to none -n "$ranks" case/rank-0000 mpi $i $late
  runs=$((runs + 1)) large=$((large + (bytes > 64)))
  cmp -s threads.out mpi.out || { diff threads.out mpi.out; fail "case $i, $what: other results"; }
done
echo "cases $first to $cases of seed $seed: $runs runs end, $large with 4 MB, in $(($(date +%s) - begin)) s"
[ $# -gt 1 ] || [ $mpi = no ] || bash "$root/tests/e2e/stage_matrix.sh" "$dnnc" drawn 2 || fail "a drawn case"
[ $mpi = yes ] || skip "over MPI: needs mpirun"

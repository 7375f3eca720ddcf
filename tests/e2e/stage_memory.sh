#!/bin/bash
# Memory of stages.  1f1b has min(p - r, m) micro-batches alive on rank r, so frames of
# so many, fthenb has m; under zbh1 those of equal stages grow by equal steps.  What `simulate` predicts for a rank is what its program plans,
# and the highest byte that it touches is the last one.  Tables of 96 micro-batches are
# at most 1.2 times those of 16.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
gpt="$root/benchmarks/systems/gpt.dnn"
sed 's/count = 2/count = 8/' "$root/models/laptop.cluster" >many.cluster

plan() { # name, ranks, schedule, micro-batches: blocks 0, 1, ... on a rank each
  printf 'mesh { pipe = %d }\nplan {\n  schedule = %s\n  microbatches = %d\n' "$2" "$3" "$4" >"$1.plan"
  for ((i = 0; i + 1 < $2; i++)); do echo "  cut after block[$i]"; done >>"$1.plan"
  echo '}' >>"$1.plan"
}

# ---- frames ----
# frames SCHEDULE: bytes of frames by rank.
frames() {
  plan "$1" 5 "$1" 8
  "$dnnc" simulate "$gpt" L=5 --plan "$1.plan" --cluster many.cluster --json >"$1.json" 2>err ||
    { cat err >&2; return 1; }
  grep -o '"frames":[0-9]*' "$1.json" | cut -d: -f2
}
# check_arena SCHEDULE [LIBRARY]: predicted, planned and touched bytes of each rank; a
# library may leave the end of its scratch as it is.
check_arena() {
  local predicted planned touched scratch=0
  DNN_POISON=1 "$dnnc" run "$gpt" L=5 --quick --plan "$1.plan" --steps 2 --no-save --json >run.json 2>err </dev/null ||
    { cat err; fail "$1 does not train"; }
  predicted=$(grep -o '"peak_bytes":[0-9]*' "$1.json" | cut -d: -f2 | paste -sd ,)
  planned=$(sed -n 's/.*"arena_bytes":\[\([^]]*\)\].*/\1/p' run.json)
  touched=$(sed -n 's/.*"arena_touched_bytes":\[\([^]]*\)\].*/\1/p' run.json)
  echo "$1: predicted $predicted, planned $planned, touched $touched"
  [ -z "${2:-}" ] || scratch=$("$dnnc" show "$1.plan" --model "$gpt" L=5 --json |
    sed -n 's/.*"most_workspace":\([0-9]*\).*/\1/p' | head -n 1)
  [ "$predicted" = "$planned" ] && paste <(tr , '\n' <<<"$planned") <(tr , '\n' <<<"$touched") |
    awk -v scratch="$scratch" '$2 > $1 || $2 + scratch < $1 { bad = 1 } END { exit bad || NR != 5 }' ||
    fail "$1: other bytes"
}

one=$(frames 1f1b) && all=$(frames fthenb) || fail "no price"
paste <(echo "$one") <(echo "$all") | awk '
  { p = 5; m = 8; r = NR - 1; alive = p - r < m ? p - r : m
    printf "rank %d: frames of %d bytes with 1f1b, %d with fthenb\n", r, $1, $2
    if ($1 * m != $2 * alive || $1 == 0) bad = 1 }
  END { exit bad || NR != 5 }' || fail "frames are not those of min(p - r, m) micro-batches"
# A frame of zbh1 is one of min(p, m), of min(p - r, m), or of those between I and W.
apart=$(frames zbh1) || fail "no price of zbh1"
paste <(echo "$one") <(echo "$apart") | awk '
  { r = NR - 1; one[r] = $1; apart[r] = $2
    printf "rank %d: frames of %d bytes with zbh1\n", r, $2 }
  END {
    if (apart[1] + apart[3] != 2 * apart[2]) bad = 1
    for (r = 1; r < 4; r++) if (apart[r] >= one[r] / (5 - r) * 6) bad = 1
    exit bad || NR != 5 }' || fail "zbh1 has other frames"
has_mpi && check_arena 1f1b && check_arena fthenb && check_arena zbh1 library

# ---- tables ----
tables() { # schedule, micro-batches
  plan tables 4 "$1" "$2"
  rm -rf tables.bundle
  "$dnnc" build "$gpt" L=4 B=192 --quick --keep-source --quiet --plan tables.plan -o tables.bundle 2>err ||
    { cat err >&2; return 1; }
  wc -c <tables.bundle/source/tables.bin
}
for schedule in 1f1b fthenb; do
  few=$(tables $schedule 16) && many=$(tables $schedule 96) || fail "$schedule is not built"
  echo "$schedule: tables of $few bytes for 16 micro-batches, $many for 96"
  [ $((many * 10)) -le $((few * 12)) ] || fail "tables grow with micro-batches"
done

#!/bin/bash
# Equal bits on integer data: one step of emitted programs on one rank and two,
# in micro-batches and under random plans, against the interpreter, on random
# models that provably do not round; and faults in the tables of such programs,
# which other bits must show.
#   exact.sh DNNC [FIRST [LAST [PLANS]]]   seeds, default 53 to 57, and plans of
#                                          each, default 2; then four faults
#   exact.sh DNNC faults [COUNT [FIRST]]   faults alone, until COUNT (50) are
#                                          found, in programs of the seeds from
#                                          FIRST (53) on
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/random.bash"

# ---- equal bits ----

check() { # seed what facts
  "$exact" compare "$1" "$checkpoint" "$loss" || fail "seed $1 $2 ($3)"
}

# accept SEED N COMMAND...: runs the command with the Nth random plan that dnnc
# accepts, in the file random.plan of the model.  False: none of eight is.
accept() {
  local seed=$1 number=$(($2 * 8)) end=$(($2 * 8 + 8))
  shift 2
  for (( ; number < end; number++)); do
    "$exact" plan "$seed" "$number" "m$seed/random.plan" || fail "no plan"
    "$@" --plan "m$seed/random.plan" && return
    grep -q 'random.plan:.*error: \|model.dnn:.*error: \|not supported yet' "m$seed/out.err" || {
      cat "m$seed/random.plan" "m$seed/out.err"
      fail "seed $seed, plan $number"
    }
    refused=$((refused + 1))
  done
  false
}

run_seed() { # seed plans
  local here="1:1" facts plan
  libraries "$1"
  facts=$("$exact" make "$1" "m$1") || fail "seed $1: $facts"
  has_mpi && here="1:1 2:1"
  # A sum over the batch inside the net needs all samples at once.
  case $facts in *reduces_batch=0) has_mpi && here="1:1 2:2" || here="1:1 1:4" ;; esac
  for spread in $here; do
    step "m$1" --ranks "${spread%:*}" --microbatches "${spread#*:}"
    check "$1" "on $spread (ranks:micro-batches)" "$facts"
  done
  has_mpi || { echo "seed $1: $facts, $here: equal bits"; return; }
  for plan in $(seq "$2"); do
    accept "$1" "$plan" try_step "m$1" || continue
    check "$1" "under $(cat "m$1/random.plan")" "$facts"
    equal=$((equal + 1))
  done
  echo "seed $1: $facts, $here and random plans: equal bits"
}

# ---- faults ----

# A compiler that links the fault in front of a program.
fault_compiler() {
  local real
  real=$(command -v "${CC:-cc}")
  "$real" -std=gnu11 -O1 -I"$root" -c -o "$work/table_faults.o" \
    "$root/tests/e2e/table_faults.c" || fail "cannot compile the faults"
  cat >"$work/fault-cc" <<END
#!/bin/sh
case " \$* " in
*libdnnrank.a*) exec "$real" -Wl,--wrap=rank_main "$work/table_faults.o" "\$@" ;;
esac
exec "$real" "\$@"
END
  chmod +x "$work/fault-cc"
}

build_faulty() { # folder arguments
  local folder=$1
  shift
  CC=$work/fault-cc "$dnnc" build "$folder/model.dnn" -o "$folder/faulty" \
    "save=$PWD/$folder/out.ckpt" "$@" >"$folder/out.json" 2>"$folder/out.err"
}

# run_faulty SEED [NUMBERS]: 0: equal bits, 1: other bits, 2: it did not end.
run_faulty() {
  local folder=m$1
  rm -rf "$folder/out.ckpt"
  timeout -k 5 30 "$folder/faulty/run" --load "$folder/first.ckpt" --json \
    >"$folder/out.json" 2>"$folder/out.err" </dev/null || return 2
  made "$folder"
  "$exact" compare "$1" "$checkpoint" "$loss" ${2:+"$2"} >"$folder/compare" ||
    return 1
}

# try_fault SEED KIND PLACE: adds a line to `faults`.  What other numbers do not
# show either is equivalent: an operand that is not read there, two members of
# a sum in another order.
try_fault() {
  export DNNC_TABLE_FAULT=$2:$3
  local how=equivalent numbers
  for numbers in "" 2; do
    "$exact" make "$1" "m$1" ${numbers:+"$numbers"} >/dev/null
    run_faulty "$1" $numbers
    case $? in
    1) how=bits ;;
    2) how=stopped ;;
    *) continue ;;
    esac
    break
  done
  unset DNNC_TABLE_FAULT
  echo "$2 $how, seed $1 $(grep -m 1 '^fault: ' "m$1/out.err")" >>faults
}

# faults_of SEED MOST: at most so many faults in a program of the seed under a
# random plan, of kinds that have the fewest so far, one of a kind and place.
faults_of() {
  local left=$2 kind places
  libraries "$1"
  "$exact" make "$1" "m$1" >/dev/null || fail "seed $1"
  accept "$1" 0 build_faulty "m$1" || return
  run_faulty "$1" || fail "seed $1 without a fault"
  DNNC_TABLE_FAULT=list "m$1/faulty/run" >places
  while read -r kind places; do
    echo "$(grep -c "^$kind " faults) $kind $places"
  done <places | sort -s -n -k 1,1 >wanted
  while read -r _ kind places && [ "$left" -gt 0 ]; do
    [ "$places" -gt 0 ] || continue
    try_fault "$1" "$kind" $(((places * ($1 % 7) + 3) / 7 % places))
    left=$((left - 1))
  done <wanted
  rm -rf "m$1"
}

# seed_faults COUNT SEED: until so many are found; the others are listed.
seed_faults() {
  local seed=$2 found=0 unseen=0
  fault_compiler
  : >faults
  while [ "$found" -lt "$1" ]; do
    faults_of "$seed" $(($1 - found < 4 ? $1 - found : 4))
    unseen=$(grep -c equivalent faults)
    found=$(($(wc -l <faults) - unseen))
    [ "$unseen" -le $((found + 5)) ] || { cat faults; fail "few faults are found"; }
    seed=$((seed + 1))
  done
  cut -d, -f1 faults | sort | uniq -c
  grep equivalent faults
  echo "$found faults in tables found, $unseen equivalent"
}

refused=0 equal=0
if [ "${2:-}" = faults ]; then
  has_mpi || skip "needs mpirun"
  seed_faults "${3:-50}" "${4:-53}"
  exit
fi
first=${2:-53}
for seed in $(seq "$first" "${3:-${2:-57}}"); do
  run_seed "$seed" "${4:-2}"
done
has_mpi || skip "ranks: needs mpirun"
echo "$equal random plans: equal bits; $refused others were refused"
[ -n "${2:-}" ] || seed_faults 4 "$first"

#!/bin/bash
# Every step of docs/tutorial.md, in order.  A fence "dnn NAME" or "plan NAME"
# is a file that the reader saves; a fence "console" holds commands after "$ "
# and their output.  Words of the output must agree, numbers with a point
# within 10 %; times, rates and counts of kernels are not compared.  The output
# of "console example" is not compared.  DNNC_BLESS=1 writes the page anew.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "no mpirun"
page=$root/docs/tutorial.md
cp -r "$root/data" .
export PATH="$(dirname "$dnnc"):$PATH"

# run_step COMMAND: as a reader's shell runs it, with its errors.
run_step() {
  echo "\$ $1"
  bash -c "$1" 2>&1
}

fence=
while IFS= read -r line; do
  case $fence,$line in
  ,'```'?*)
    echo "$line"
    fence=${line#'```'}
    case $fence in
    dnn\ * | plan\ *) : >"${fence#* }" ;;
    esac
    ;;
  *,'```')
    echo "$line"
    fence=
    ;;
  console*,'$ '*)
    run_step "${line#'$ '}"
    ;;
  console*) ;; # output: replaced by that of the command
  dnn\ *,* | plan\ *,*)
    echo "$line"
    echo "$line" >>"${fence#* }"
    ;;
  *) echo "$line" ;;
  esac
done <"$page" >new.md
n_steps=$(grep -c '^\$ ' new.md)

# Lines of examples are left out, what varies is masked.
mask() {
  awk '/^```console example/ { print; skip = 1; next } /^```/ { skip = 0 } !skip || /^\$ /' "$1" |
    sed -E -e 's/[0-9.]+k? (tok|samples)\/s/# \1\/s/; s/[0-9.]+ (ms|s)( |$)/# \1\2/g; s/[0-9]+ MB$/# MB/' \
      -e 's/[0-9]+ kernels in [0-9]+ files \([0-9]+ from/# kernels in # files (# from/'
}
mask "$page" >old.txt
mask new.md >new.txt
awk -v other=new.txt '
  function number(w) { return w ~ /^-?[0-9]*\.[0-9]+(e[-+]?[0-9]+)?$/ }
  function close_to(a, b) { d = a - b; if (d < 0) d = -d; m = a < 0 ? -a : a; return d <= 0.1 * m + 0.02 }
  {
    if ((getline line < other) <= 0) line = "(nothing)"
    n = split($0, a, " "); m = split(line, b, " ")
    same = n == m
    for (i = 1; same && i <= n; i++)
      same = a[i] "" == b[i] "" || number(a[i]) && number(b[i]) && close_to(a[i], b[i])
    if (!same) { printf "tutorial: %s\n     now: %s\n", $0, line; bad = 1; exit }
  }
  END { exit bad }' old.txt >differs || {
  [ -n "${DNNC_BLESS:-}" ] || { cat differs; fail "docs/tutorial.md differs from what its commands print"; }
}
[ -z "${DNNC_BLESS:-}" ] || cp new.md "$page"
grep -A 30 '^```console example' new.md | grep -q '^ma' || fail "sample does not begin with its prompt"
echo "$n_steps commands"
[ "$n_steps" -ge 20 ] || fail "too few commands"

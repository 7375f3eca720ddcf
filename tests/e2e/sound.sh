#!/bin/bash
# bench_sound goes on where a run stopped, and finds out a compiler that lies: about its bound, about
# what fits, and about the plan that it wrote.
. "$(dirname "$0")/lib.sh"
bench="$(dirname "$dnnc")/bench_sound"
few="--most 200 --outside 5 --verify 0 --threads 1"

"$bench" --dnnc "$dnnc" --cases 2 $few --state state >first || { cat first; fail "two cases"; }
"$bench" --dnnc "$dnnc" --cases 4 $few --state state >table || { cat table; fail "four cases"; }
grep -q '^4 cases, 0 failed' table && [ "$(grep -vc '^#' state)" = 4 ] || { cat table state; fail "the run does not go on"; }
[ ! -e failed ] || fail "files of cases that hold are left"
"$bench" --dnnc "$dnnc" --cases 4 $few --state state --json >json || fail "JSON"
grep -q '^{"cases":4,"failed":0,' json || { cat json; fail "JSON"; }

# A wrapper that calls the compiler and changes what it says; a seed of which a plan fits.
seed=$(awk '!/^#/ && $6 == 0 && $11 > 0 { print $1; exit }' state)
[ "$seed" ] || { cat state; fail "no case has a plan that fits"; }
lie() { # NAME COMMANDS EXPECTED [OPTION ...]: the commands see the words of the compiler
  printf '#!/bin/bash\n%s\n' "$2" >"$1"
  chmod +x "$1"
  "$bench" --dnnc "$PWD/$1" --case "$seed" $few --out "$1.files" "${@:4}" >"$1.out" 2>&1
  [ $? = 1 ] || { cat "$1.out"; fail "$1 is not found out"; }
  grep -q "^seed $seed: $3" "$1.out" || { cat "$1.out"; fail "$1: another fault"; }
  [ -e "$1.files/case-$seed/model.dnn" ] || fail "$1: no files are kept"
}
lie bound "\"$dnnc\" \"\$@\" | sed 's/^{/{\"bound_s\":1e3,/'" 'a plan is faster than the bound'
lie step "\"$dnnc\" \"\$@\" | sed 's/\"step_s\":[^,]*/\"step_s\":1e-9/'" 'the plan that was written has another step'
lie nothing 'exit 2' 'nothing was found, and a plan fits'
lie illegal 'exit 1' 'no plan was called legal, and one is'
lie crash 'kill -SEGV $$' 'the search ended by a signal'
lie method "\"$dnnc\" \"\$@\" | sed 's/\"elimination\":0/\"elimination\":7/'" 'the general engine was asked for' --search engine

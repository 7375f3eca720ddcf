# lib.sh -- shared by the end-to-end tests: a scratch folder, a private cache,
# and helpers.  Usage: . "$(dirname "$0")/lib.sh" with $1 = path of dnnc.
set -u
dnnc=$(readlink -f "$(command -v "$1")")
[ -n "$dnnc" ] || { echo "FAIL: no program $1" >&2; exit 1; }
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=${DNNC_TEST_CACHE:-$work/cache}
cd "$work" || exit 1

# slowness: how many times the processor time of a machine at its usual speed a
# program takes: a loop of awk takes a quarter of a second there.  A shared
# machine may have half of that speed.  With %R it is the time that a
# program takes while others wait for its core.
slowness() {
  local TIMEFORMAT=${1:-%U}
  for _ in 1 2 3; do
    { time awk 'BEGIN { for (i = 0; i < 5000000; i++) s += i % 7 }'; } 2>&1
  done | sort -n | awk 'NR == 1 { print ($1 > 0.25 ? $1 / 0.25 : 1) }'
}
# in_time MS LIMIT_MS: a promise in seconds is kept; a machine with other work is
# given as many times longer as it takes for a program of its own just now.
in_time() {
  [ "$1" -le "$2" ] || awk -v ms="$1" -v limit="$2" -v slow="$(slowness %R)" 'BEGIN { exit !(ms <= limit * slow) }'
}

fail() {
  echo "FAIL: $*" >&2
  exit 1
}
skip() {
  echo "skipped: $*"
  exit 77
}
has_mpi() { command -v mpirun >/dev/null; }
# field KEY FILE: the last value of a key in a file of JSON lines.
field() {
  grep -o "\"$1\":[^,}]*" "$2" | tail -n 1 | cut -d: -f2- | tr -d '"'
}
# close A B RELATIVE
close() {
  awk -v a="$1" -v b="$2" -v r="$3" 'BEGIN {
    d = a - b; if (d < 0) d = -d
    m = a < 0 ? -a : a
    exit !(a != "" && b != "" && d <= r * m) }'
}
# stub_cc: a C compiler that writes something where an object or a program
# is wanted, so that `dnnc build` is quick and nothing emitted is run.
stub_cc() {
  cat >"$work/stub-cc" <<'END'
#!/bin/sh
while [ $# -gt 0 ]; do
  [ "$1" = -o ] && out=$2
  shift
done
[ -z "${out:-}" ] || printf '\177ELF object\n' >"$out"
END
  chmod +x "$work/stub-cc"
  export CC=$work/stub-cc
}
# quick_kernels: from here on kernels are compiled as with `--quick`, at -O1 in
# place of -O3, which takes three fifths of the time.  For tests of something
# else than kernels; DNNC_TEST_O3=1 compiles them as users do.
quick_kernels() {
  [ -z "${DNNC_TEST_O3:-}" ] || return 0
  cat >"$work/quick-cc" <<END
#!/bin/sh
[ "\$1" != --version ] || echo "with -O1 for -O3" # another key in the cache
for word; do
  shift
  [ "\$word" != -O3 ] || word=-O1
  set -- "\$@" "\$word"
done
exec ${CC:-cc} "\$@"
END
  chmod +x "$work/quick-cc"
  export CC=$work/quick-cc
}

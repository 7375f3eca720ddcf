# page.bash -- runs a page of documentation as a reader would, and compares.
#
#   try_page PAGE   in the current folder, with dnnc on the path
#
# A fence "dnn NAME", "plan NAME" or "cluster NAME" is a file that the reader saves; a fence
# "console" holds commands after "$ " and their output.  Words of the output
# must agree, numbers with a point within 10 %; times, rates and counts of
# kernels are not compared, nor is the output of "console example".  That of
# "console exact", where nothing is measured, agrees to the last digit; a line
# "..." stands for lines that the page leaves out.  The page with today's output
# is left in new.md; DNNC_BLESS=1 writes it to PAGE where they differ.

# Prints the lines of an output (second file) that a page shows (first file),
# each with today's figures, and "..." where lines are left out.
shown_lines() {
  awk 'NR == FNR { want[++n] = $0; next } { have[++m] = $0 }
    function key(line) { gsub(/[-+]?[0-9][0-9.]*( [kMGTP]?B)?/, "#", line); gsub(/ +/, " ", line); return line }
    END {
      for (i = at = 1; i <= n; i++) {
        if (want[i] == "...") { print "..."; is_gap = 1; continue }
        for (j = at; j <= m && have[j] != want[i]; j++) continue
        if (j > m)
          for (j = at; j <= m && key(have[j]) != key(want[i]); j++) continue
        if (j > m) continue
        if (j > at && !is_gap) print "..."
        print have[j]
        at = j + 1
        is_gap = 0
      }
      if (at <= m && !is_gap) print "..."
    }' "$1" "$2" 2>/dev/null
}

# The page with the output of its commands.
run_page() {
  local fence= line
  : >exact.out >exact.page
  while IFS= read -r line; do
    case $fence,$line in
    ,'```'?*)
      echo "$line"
      fence=${line#'```'}
      case $fence in
      dnn\ * | plan\ * | cluster\ *) : >"${fence#* }" ;;
      esac
      ;;
    *,'```')
      shown_lines exact.page exact.out
      : >exact.out >exact.page
      echo "$line"
      fence=
      ;;
    'console exact','$ '*)
      shown_lines exact.page exact.out
      : >exact.page
      echo "$line"
      bash -c "${line#'$ '}" >exact.out 2>&1 </dev/null
      ;;
    'console exact',*) echo "$line" >>exact.page ;;
    console*,'$ '*)
      echo "$line"
      bash -c "${line#'$ '}" 2>&1 </dev/null
      ;;
    console*) ;; # output: that of the command stands for it
    dnn\ *,* | plan\ *,* | cluster\ *,*)
      echo "$line"
      echo "$line" >>"${fence#* }"
      ;;
    *) echo "$line" ;;
    esac
  done <"$1"
}

# Leaves out the output of examples, masks what varies, and makes one word of each
# line of exact output.
mask_page() {
  awk '/^```console example/ { print; skip = 1; next } /^```/ { skip = exact = 0 } /^```console exact/ { exact = 1 }
    exact { gsub(/ /, "_") } !skip || /^\$ /' "$1" |
    sed -E -e 's/[0-9.]+k? (tok|samples)\/s/# \1\/s/; s/[0-9.]+ (ms|s)( |$)/# \1\2/g; s/[0-9]+ MB$/# MB/' \
      -e 's/[0-9]+ kernels in [0-9]+ files \([0-9]+ from/# kernels in # files (# from/'
}

try_page() {
  run_page "$1" >new.md
  mask_page "$1" >old.txt
  mask_page new.md >new.txt
  if awk -v other=new.txt '
    function number(w) { return w ~ /^-?[0-9]*\.[0-9]+(e[-+]?[0-9]+)?$/ }
    function close_to(a, b) { d = a - b; if (d < 0) d = -d; m = a < 0 ? -a : a; return d <= 0.1 * m + 0.02 }
    {
      if ((getline line < other) <= 0) line = "(nothing)"
      n = split($0, a, " "); m = split(line, b, " ")
      same = n == m
      for (i = 1; same && i <= n; i++)
        same = a[i] "" == b[i] "" || number(a[i]) && number(b[i]) && close_to(a[i], b[i])
      if (!same) { printf "page: %s\n now: %s\n", $0, line; bad = 1; exit }
    }
    END { exit bad }' old.txt >differs && [ "$(wc -l <old.txt)" = "$(wc -l <new.txt)" ]; then
    echo "$(grep -c '^\$ ' new.md) commands"
  elif [ -n "${DNNC_BLESS:-}" ]; then
    cp new.md "$1"
  else
    cat differs
    fail "$(basename "$1") differs from what its commands print (DNNC_BLESS=1 writes it anew)"
  fi
}

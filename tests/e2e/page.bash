# page.bash -- runs a page of documentation as a reader would, and compares.
#
#   try_page PAGE   in the current folder, with dnnc on the path
#
# A fence "dnn NAME" or "plan NAME" is a file that the reader saves; a fence
# "console" holds commands after "$ " and their output.  Words of the output
# must agree, numbers with a point within 10 %; times, rates and counts of
# kernels are not compared, nor is the output of "console example".  The page
# with today's output is left in new.md; DNNC_BLESS=1 writes it to PAGE where
# they differ.

# The page with the output of its commands.
run_page() {
  local fence= line
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
      echo "$line"
      bash -c "${line#'$ '}" 2>&1 </dev/null
      ;;
    console*) ;; # output: that of the command stands for it
    dnn\ *,* | plan\ *,*)
      echo "$line"
      echo "$line" >>"${fence#* }"
      ;;
    *) echo "$line" ;;
    esac
  done <"$1"
}

# Leaves out the output of examples and masks what varies.
mask_page() {
  awk '/^```console example/ { print; skip = 1; next } /^```/ { skip = 0 } !skip || /^\$ /' "$1" |
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

#!/bin/bash
# The documents tell the truth.  docs/commands.md is what the tables print,
# docs/optimizers.md lists the optimizers and schedules of the tables, and
# every fragment of README.md and docs/ is tried by its kind:
#   dnn         a whole program: no error
#   dnn header  a whole program; the comment line of its net is replaced by
#   dnn body    ... the lines of this example: no error
#   dnn-error   a whole program, example.dnn; the next "message" is what comes
#   section12   what the programs of tests/golden/section12 say, in order
#   plan        pins that dnnc reads; cluster and map likewise
# Files of the repository that a page names in backquotes or links to must be
# there, every page of docs/inside/ in ARCHITECTURE.md, and every operator of the
# language in docs/language.md.
. "$(dirname "$0")/lib.sh"
"$dnnc" --commands >commands.md
cmp -s commands.md "$root/docs/commands.md" || {
  [ -n "${DNNC_BLESS:-}" ] && cp commands.md "$root/docs/commands.md" ||
    fail "docs/commands.md is not what 'dnnc --commands' prints"
}
"$dnnc" list passes --markdown >passes.md
sed -n '/^<!-- passes -->$/,/^<!-- end of passes -->$/p' "$root/ARCHITECTURE.md" |
  sed '1d;$d' | cmp -s - passes.md || {
  [ -n "${DNNC_BLESS:-}" ] && sed -i -e '/^<!-- passes -->$/,/^<!-- end of passes -->$/{/^|/d}' \
    -e '/^<!-- passes -->$/r passes.md' "$root/ARCHITECTURE.md" ||
    fail "the table of ARCHITECTURE.md is not what 'dnnc list passes --markdown' prints"
}
"$dnnc" --man | grep -q '^\.TH DNNC' || fail "manual page"
# The tables of optimizers and schedules have the calls that the rows declare.
"$dnnc" list optimizers >optimizers.txt
sed -n 's/^| `\([a-z_]*(.*)\)` |.*/\1/p' "$root/docs/optimizers.md" >calls.txt
while read -r call; do
  grep -qF "$call" optimizers.txt || fail "docs/optimizers.md: no such call: $call"
done <calls.txt
grep '^[a-z]*(' optimizers.txt | sort >listed.txt
grep '(lr' calls.txt | sort | cmp -s - listed.txt ||
  fail "docs/optimizers.md lists other optimizers than 'dnnc list optimizers'"
for command in check ir build run sample predict eval verify convert show simulate diff cluster list; do
  "$dnnc" $command --help >help.txt
  grep -q "usage: dnnc $command" help.txt || fail "$command --help"
  "$dnnc" help $command | cmp -s - help.txt || fail "help $command"
  # An option says there what it does for this command alone.
  for other in check ir build run sample predict eval verify convert show simulate diff tune cluster list; do
    grep -E "(  |[;.] )$other(, [a-z]+)*: " help.txt && fail "help $command speaks of $other"
  done
done
"$root/tools/operator-pages.sh" "$work/operators"
diff -r operators "$root/docs/operators" >out || {
  [ -n "${DNNC_BLESS:-}" ] && rm -rf "$root/docs/operators" && cp -r operators "$root/docs/operators" ||
    { cat out; fail "docs/operators/ is not what 'tools/operator-pages.sh docs/operators' prints"; }
}
cp "$root"/models/*.dnn .

# Writes fragment N of a file as N.KIND, with blanks in the kind as dashes.
cut_fragments() {
  rm -rf fragments && mkdir fragments
  awk '!on && /^```[a-z]/ { n++; kind = substr($0, 4); gsub(/ /, "-", kind)
         file = sprintf("fragments/%03d.%s", n, kind); on = 1; printf "" > file; next }
       $0 == "```" { on = 0 } on { print > file }' "$1"
}
bad=0 n_tried=0 header=
complain() {
  echo "FAIL: $(basename "$page"), fragment $fragment"
  cat "$work/out"
  bad=1
}
accept() { "$dnnc" "$@" >"$work/out" 2>&1 || complain; }

try_fragment() {
  case $fragment in
  *.dnn) cp "$fragment" example.dnn && accept check example.dnn ;;
  *.dnn-header)
    header=$fragment
    cp "$fragment" example.dnn && accept check example.dnn
    ;;
  *.dnn-body)
    awk -v body="$fragment" '/^  #/ && !done {
        while ((getline line < body) > 0) print "  " line
        done = 1; next } { print }' "$header" >example.dnn
    accept check example.dnn
    ;;
  *.dnn-error)
    cp "$fragment" example.dnn
    "$dnnc" check example.dnn >"$work/out" 2>&1 && complain
    ;;
  *.message) diff "$fragment" "$work/out" >"$work/diff" || { cp "$work/diff" "$work/out"; complain; } ;;
  *.section12)
    for program in "$root"/tests/golden/section12/*.dnn; do
      name=$(basename "$program")
      cp "$program" "${name#*.}"
      "$dnnc" check "${name#*.}" && bad=1
      echo
    done 2>&1 | sed '$d' >"$work/out"
    cp "$root"/models/*.dnn .
    diff "$fragment" "$work/out" >"$work/diff" || { cp "$work/diff" "$work/out"; complain; }
    ;;
  *.plan | *.cluster | *.map) accept show "$fragment" ;;
  *) return ;;
  esac
  n_tried=$((n_tried + 1))
}
for page in "$root"/README.md "$root"/docs/*.md "$root"/docs/design/*.md; do
  cut_fragments "$page"
  for fragment in fragments/*; do
    [ -f "$fragment" ] && try_fragment
  done
done
# Files that a page names are there.
cd "$root" || exit 1
for page in README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md tests/README.md benchmarks/README.md benchmarks/plans/README.md \
  docs/*.md docs/design/*.md docs/inside/*.md; do
  # Links of Markdown lead to files beside the page.
  for link in $(sed -e '/^```/,/^```$/d' -e '/^    /d' -e 's/`[^`]*`//g' "$page" | grep -oE '\]\([^)# ]+' | cut -c 3- | grep -v '^https\?:'); do
    [ -e "$(dirname "$page")/$link" ] || { echo "FAIL: $page links to $link, which is not there"; bad=1; }
  done
  for file in $(grep -ohE '`(ir|frontend|passes|codegen|runtime|convert|driver|support|tools|tests|docs|models|benchmarks|verify|interp|planner|price)/[A-Za-z0-9_./*-]*`' \
    "$page" | tr -d '`' | sort -u); do
    case $file in
    *NAME* | *FOLDER*) continue ;;
    esac
    compgen -G "$file" >"$work/found" || { echo "FAIL: $page names $file, which is not there"; bad=1; }
  done
done
# Output that no test compares: a fence without a kind holds no message.
for page in README.md docs/*.md docs/*/*.md; do
  awk '/^```/ { is_plain = $0 == "```" && !on; on = !on; next } on && is_plain && /(error|warning): |^\$ /' "$page" >"$work/found"
  [ ! -s "$work/found" ] || { echo "FAIL: $page has output in a fence without a kind:"; cat "$work/found"; bad=1; }
done
for page in docs/inside/*.md; do
  grep -qF "($page)" ARCHITECTURE.md || { echo "FAIL: ARCHITECTURE.md does not name $page"; bad=1; }
done
# Every operator that a model can call stands in docs/language.md.
for name in $(sed -n 's/^BUILTIN(\([a-z0-9_]*\),.*/\1/p' frontend/operators/builtins.def
  sed -n 's/^PW[123](\([a-z0-9_]*\),.*/\1/p' ir/ops.def); do
  grep -qE "(^|[^a-z_0-9])$name([^a-z_0-9]|$)" docs/language.md ||
    { echo "FAIL: docs/language.md does not describe the operator $name"; bad=1; }
done
echo "$n_tried fragments"
[ $n_tried -ge 30 ] || fail "too few fragments"
exit $bad

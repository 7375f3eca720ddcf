#!/bin/bash
# The documents tell the truth: docs/commands.md is what the tables print, every
# complete program (```dnn) is checked, every plan (```plan) and cluster is read,
# and every command line of the README is tried.
. "$(dirname "$0")/lib.sh"
"$dnnc" --commands >commands.md
cmp -s commands.md "$root/docs/commands.md" || {
  [ -n "${DNNC_BLESS:-}" ] && cp commands.md "$root/docs/commands.md" ||
    fail "docs/commands.md is not what 'dnnc --commands' prints"
}
"$dnnc" --man | grep -q '^\.TH DNNC' || fail "manual page"
for command in check ir build run sample convert show list; do
  "$dnnc" $command --help | grep -q "usage: dnnc $command" || fail "$command --help"
done

blocks=0
for file in "$root"/README.md "$root"/docs/*.md; do
  for kind in dnn plan cluster map; do
    rm -f block-*
    awk -v kind=$kind '$0 == "```" kind { n++; on = 1; next }
      $0 == "```" { on = 0 } on { print > ("block-" n "." kind) }' "$file"
    for block in block-*; do
      [ -f "$block" ] || continue
      blocks=$((blocks + 1))
      action=show
      [ $kind = dnn ] && action=check
      "$dnnc" $action "$block" >out 2>&1 ||
        { cat "$block" out; fail "$(basename "$file"): a block of $kind"; }
    done
  done
done
[ $blocks -gt 0 ] || fail "no examples found"

# Command lines of the README that start with build/dnnc, in a copy of the tree
# with few steps.
ln -s "$root/models" "$root/data" "$root/tests" .
mkdir build && ln -s "$dnnc" build/dnnc
lines=0
while IFS= read -r line; do
  line=${line%%#*}
  case $line in
  *" sample "*) "$dnnc" run models/chargpt.dnn steps=2 eval_batches=1 --quiet ||
    fail "a checkpoint to sample from" ;;
  *" run "*) line="$line steps=3 eval_batches=1 --quiet" ;;
  esac
  lines=$((lines + 1))
  $line >out 2>&1 || { cat out; fail "README: $line"; }
done < <(grep -hE '^ +build/dnnc ' "$root/README.md")
echo "$blocks examples, $lines command lines"

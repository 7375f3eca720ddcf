#!/bin/bash
# Command lines, most of them wrong, each with its golden (tests/golden/cli): the
# first line of a file is the command line, the rest is what must come out.
. "$(dirname "$0")/lib.sh"
cp -r "$root/models" "$root/tests/golden/machines" .
printf 'dim B = 2\nnet f(x: [B]) -> [B] { return 2 * x }\n' >forward.dnn
bad=0
for golden in "$root"/tests/golden/cli/*.txt; do
  line=$(head -n 1 "$golden" | sed 's/^\$ dnnc//')
  got=$({ eval "'$dnnc' $line"; echo "exit $?"; } 2>&1 </dev/null)
  if [ -n "${DNNC_BLESS:-}" ]; then
    printf '$ dnnc%s\n%s\n' "$line" "$got" >"$golden"
  elif [ "$got" != "$(tail -n +2 "$golden")" ]; then
    echo "FAIL: $(basename "$golden"): dnnc$line"
    diff <(tail -n +2 "$golden") <(echo "$got")
    bad=1
  fi
done
exit $bad

#!/bin/bash
# The commands of documentation pages print the output on the page: every page
# with a fence "console" (tutorial.sh has its own).  The tables of docs/ir.md have
# a row for each row of the tables of ir/.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/page.bash"
cp -r "$root/data" .
PATH="$(dirname "$dnnc"):$PATH"
models=$root/models # files that the pages name
cp "$models/gpt3.dnn" "$models/gpt2.dnn" "$models/vgg16.dnn" "$models/lib.dnn" "$models/a100x1024.cluster" \
  "$models/pipedream-a.cluster" "$models/chargpt.dnn" \
  "$root/benchmarks/plans/gpt3.plan" "$root/tests/golden/plans/model.dnn" .
pages=$(cd "$root" && grep -l '^```console' docs/*.md docs/*/*.md | grep -v '^docs/tutorial.md$')
[ "$(echo "$pages" | wc -l)" -ge 4 ] || fail "too few pages with commands"
for page in $pages; do
  try_page "$root/$page"
done

# rows TABLE COLUMNS: what stands in backquotes in the first column, with the
# second, of the section of docs/ir.md with this title.
rows() {
  awk -v title="## $1" -v columns="$2" -F'|' '
    /^## / { on = $0 == title }
    on && /^\| `/ {
      n = split($2, names, ","); kind = $3; gsub(/[ `]/, "", kind)
      for (i = 1; i <= n; i++) { gsub(/[ `]/, "", names[i]); print names[i] (columns > 1 ? " " kind : "") }
    }' "$root/docs/ir.md" | sort
}
sed -n 's/^ROLE(\([a-z_]*\),.*/\1/p' "$root/ir/roles.def" | sort >roles
grep -oE '^ATTR\([a-z_]+, *[A-Z]+\)' "$root/ir/attrs.def" | sed -E 's/ATTR\(([a-z_]+), *([A-Z]+)\)/\1 \2/' | sort >attrs
rows Roles 1 | diff roles - || fail "docs/ir.md and ir/roles.def have other roles"
rows Attributes 2 | diff attrs - || fail "docs/ir.md and ir/attrs.def have other attributes"
[ "$(wc -l <roles)" -ge 15 ] && [ "$(wc -l <attrs)" -ge 20 ] || fail "the tables of ir/ are not found"

# tests/README.md names every folder of tests/ and of tests/golden/.
for folder in "$root"/tests/*/ "$root"/tests/golden/*/; do
  name=${folder#"$root"/tests/}
  name=${name%/}
  [ "$name" = golden ] || grep -q "\`$name\`" "$root/tests/README.md" ||
    fail "tests/README.md does not say what tests/$name holds"
done

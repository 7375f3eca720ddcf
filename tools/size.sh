#!/bin/bash
# size.sh -- files of at most 1,200 lines, functions of at most 70 (a flat
# switch over one enum is exempt: mark it with the comment "flat switch"), and
# ARCHITECTURE.md of at most 250 lines and 3,000 words, with a line for each
# folder.
# Headers have at most 400 lines, folders at most 40 files side by side.
set -u
cd "$(dirname "$0")/.."
bad=0
for file in $(git ls-files '*.c' '*.h' '*.inc' '*.l' '*.y'); do
  lines=$(wc -l <"$file")
  if [ "$lines" -gt 1200 ]; then
    echo "$file: $lines lines, at most 1200"
    bad=1
  fi
done
read -r lines words <<<"$(wc -lw <ARCHITECTURE.md)"
if [ "$lines" -gt 250 ] || [ "$words" -gt 3000 ]; then
  echo "ARCHITECTURE.md: $lines lines and $words words, at most 250 and 3000"
  bad=1
fi
# Folders with sources of the compiler and the runtime are in the list.
for folder in $(git ls-files '*.c' '*.h' '*.def' |
  sed -n -e '/^tests\//d' -e '/^benchmarks\//d' -e 's|/[^/]*$||p' | sort -u); do
  grep -q "^- .*\`$folder\`.*: " ARCHITECTURE.md || {
    echo "ARCHITECTURE.md: no line for the folder $folder"
    bad=1
  }
done
# A body begins at the first line that ends in ") {" outside of one; its head may
# have several lines.  It ends at a brace in the first column.
git ls-files '*.c' '*.h' '*.inc' | xargs awk '
  FNR == 1 { start = 0 }
  !start && /\) *\{$/ { start = FNR; flat = 0 }
  /flat switch/ { flat = 1 }
  /^\}/ {
    if (start && FNR - start > 70 && !flat) {
      printf "%s:%d: function of %d lines, at most 70\n", FILENAME, start,
             FNR - start
      bad = 1
    }
    start = 0
  }
  END { exit bad }' || bad=1
# Tests apart, a header has at most 400 lines and a folder at most 40 files.
for file in $(git ls-files '*.h' | grep -v '^tests/'); do
  lines=$(wc -l <"$file")
  if [ "$lines" -gt 400 ]; then
    echo "$file: header of $lines lines, at most 400"
    bad=1
  fi
done
git ls-files '*/*.c' '*/*.h' '*/*.def' | grep -v '^tests/' | sed 's|/[^/]*$||' |
  sort | uniq -c | awk '
    $1 > 40 { print $2 ": " $1 " files side by side, at most 40"; bad = 1 }
    END { exit bad }' || bad=1
exit $bad

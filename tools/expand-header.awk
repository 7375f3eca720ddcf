# expand-header.awk -- writes the copy of runtime/program.h that bundles have:
# one file, with program_settings.h in the place where it is included and with a
# member in place of each row of support/model_facts.def.
#
#   awk -f tools/expand-header.awk support/model_facts.def \
#     runtime/program_settings.h runtime/program.h

FNR == 1 { file++ }

# A row: macro, kind, name, meaning.
file == 1 {
  if (match($0, /^[A-Z]+_FACT\(/)) {
    macro = substr($0, 1, RLENGTH - 1)
    rest = substr($0, RLENGTH + 1)
    kind = rest; sub(/,.*/, "", kind)
    sub(/^[^,]*, */, "", rest)
    name = rest; sub(/,.*/, "", name)
    sub(/^[^"]*"/, "", rest); sub(/"\)$/, "", rest); gsub(/\\"/, "\"", rest)
    row = ++n[macro]
    kinds[macro, row] = kind; names[macro, row] = name; meanings[macro, row] = rest
  }
  next
}

# A kind of member.
/^#define DNN_MEMBER_/ {
  kind = substr($2, length("DNN_MEMBER_") + 1); sub(/\(.*/, "", kind)
  text = $0; sub(/^[^)]*\) */, "", text)
  members[kind] = text
  next
}

/^#define [A-Z]+_FACT\(/ { macro = $2; sub(/\(.*/, "", macro); next }

/^#include "support\/model_facts.def"/ {
  if (!n[macro]) fail("no row of " macro)
  for (row = 1; row <= n[macro]; row++) {
    if (!(kinds[macro, row] in members)) fail("no member of kind " kinds[macro, row])
    member = members[kinds[macro, row]]
    sub(/name/, names[macro, row], member)
    emit("  " member (meanings[macro, row] == "" ? "" : " /* " meanings[macro, row] " */"))
  }
  next
}

/^#include "runtime\/program_settings.h"/ && file == 3 { printf "%s", settings; next }

/^#include "/ { fail("one file cannot include " $2) }

{ emit($0) }

function emit(line) {
  if (file == 2) settings = settings line "\n"
  else print line
}

function fail(what) {
  print "expand-header.awk: " FILENAME ":" FNR ": " what > "/dev/stderr"
  exit 1
}

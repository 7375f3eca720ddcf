#!/bin/bash
# operator-pages.sh DIR -- writes DIR/FAMILY.md for each family of operators
# from ir/ops.def and frontend/operators/builtins.def.  The columns are those
# that the tables define; a family is the class of a row, for pointwise rows
# "pointwise", for operators that only the front end knows "composed".
set -eu
[ $# = 1 ] || { echo "usage: operator-pages.sh DIR" >&2; exit 1; }
cd "$(dirname "$0")/.."
mkdir -p "$1"
joined=$(mktemp -d) # rows of ops.def on one line each
trap 'rm -rf "$joined"' EXIT
sed -e '/^OP(.*,$/{N;s/\n */ /}' ir/ops.def >"$joined/ops.def"
awk -v dir="$1" '
  # Splits the arguments of a row at commas outside brackets and strings.
  function arguments(text, to,    i, c, depth, quoted, n) {
    split("", to); n = 1; to[1] = ""
    for (i = 1; i <= length(text); i++) {
      c = substr(text, i, 1)
      if (c == "\"" && substr(text, i - 1, 1) != "\\") quoted = !quoted
      if (!quoted && c == "(") depth++
      if (!quoted && c == ")" && depth-- == 0) break
      if (!quoted && c == "," && !depth) { to[++n] = ""; continue }
      to[n] = to[n] c
    }
    rest = substr(text, i + 1)
    for (i = 1; i <= n; i++) { gsub(/^ +| +$/, "", to[i]); gsub(/^"|"$/, "", to[i]) }
    return n
  }
  function code(text) { gsub(/\|/, "\\|", text); return text == "" || text == "none" ? "" : "`" text "`" }
  function plain(text) { gsub(/\|/, "\\|", text); return text }
  function cell(row, name) { return (kind[row], name) in column ? value[row, column[kind[row], name]] : "" }
  function table(family, text) {
    file = dir "/" family ".md"
    if (!(family in families)) {
      families[family]
      printf "# Operators: %s\n\n", family > file
      printf "Printed by `tools/operator-pages.sh` from `ir/ops.def` and\n" > file
      printf "`frontend/operators/builtins.def`; do not edit. `../language.md` explains what a model writes.\n\n" > file
      if (family == "composed") printf "| call |\n|---|\n" > file
      else if (family == "pointwise") printf "| operator | value | derivatives |\n|---|---|---|\n" > file
      else printf "| operator | call | operands | sharding | gradient | flags | rewritten as | notes |\n|---|---|---|---|---|---|---|---|\n" > file
    }
    print text > file
  }
  FILENAME ~ /ops.def$/ && /^#define (PW[123]|OP)\(/ {
    macro = $0; sub(/^#define /, "", macro); sub(/\(.*/, "", macro)
    n = arguments(substr($0, index($0, "(") + 1), names)
    for (i = 1; i <= n; i++) column[macro, names[i]] = i
    next
  }
  FILENAME ~ /ops.def$/ && /^\/\* ---- / {
    section = $0; gsub(/^\/\* -+ | -+.*/, "", section); sub(/[,:].*/, "", section); gsub(/ /, "_", section)
  }
  FILENAME ~ /ops.def$/ && /^(PW[123]|OP)\(/ {
    row = ++n_rows; kind[row] = substr($0, 1, index($0, "(") - 1)
    n = arguments(substr($0, index($0, "(") + 1), values)
    for (i = 1; i <= n; i++) value[row, i] = values[i]
    note[row] = ""
    if (match(rest, /\/\*.*\*\//)) note[row] = substr(rest, RSTART + 2, RLENGTH - 4)
    gsub(/^ +| +$/, "", note[row])
    family[row] = section
    of_name[values[1]] = row
  }
  FILENAME ~ /builtins.def$/ && /^BUILTIN\(/ {
    arguments(substr($0, index($0, "(") + 1), values)
    gsub(/\\"/, "\"", values[2]); gsub(/:(dims|late)/, "", values[2])
    call[values[1]] = values[1] "(" values[2] ")"
    calls[++n_calls] = values[1]
  }
  END {
    for (row = 1; row <= n_rows; row++) {
      name = cell(row, "name")
      if (kind[row] != "OP") {
        d = code(cell(row, "da"))
        if (kind[row] != "PW1") d = (d == "" ? "none" : d) ", " (cell(row, "db") == "none" ? "none" : code(cell(row, "db")))
        if (kind[row] == "PW3") d = d ", " (cell(row, "dc") == "none" ? "none" : code(cell(row, "dc")))
        table("pointwise", "| `" name "` | " code(cell(row, "value")) " | " (d == "" ? "none" : d) " |")
        continue
      }
      f = (kind[row], "class") in column ? cell(row, "class") : family[row]
      least = cell(row, "min"); most = cell(row, "max")
      operands = least == most ? least : most < 0 ? least " or more" : least " to " most
      table(f, "| `" name "` | " code(name in call ? call[name] : "") " | " operands " | " code(cell(row, "sharding")) " | " \
        (cell(row, "grad") == "none" ? "none" : "yes") " | " code(cell(row, "flags")) " | " (cell(row, "decompose") == "none" ? "" : "simpler ones") " | " plain(note[row]) " |")
    }
    for (i = 1; i <= n_calls; i++)
      if (!(calls[i] in of_name)) table("composed", "| " code(call[calls[i]]) " |")
  }' "$joined/ops.def" frontend/operators/builtins.def

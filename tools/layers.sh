#!/bin/bash
# layers.sh -- who may include whom:
#   support <- ir <- {frontend, passes} <- codegen <- tools
#   convert sees frontend and runtime
#   runtime sees support only; codegen and tools see runtime/program.h
set -u
cd "$(dirname "$0")/.."
bad=0
check() { # folder, pattern of what it may include
  local found
  found=$(git ls-files "$1/*.c" "$1/*.h" "$1/*.l" "$1/*.y" "$1/*.def" "$1/*.inc" |
    xargs -r grep -nHE '^ *# *include "(support|ir|frontend|passes|codegen|runtime|convert|tools)/' |
    grep -vE "include \"($2)")
  if [ -n "$found" ]; then
    echo "layers.sh: $1 may not include these:"
    echo "$found"
    bad=1
  fi
}
check support 'support/'
check ir 'support/|ir/'
check frontend 'support/|ir/|frontend/'
check passes 'support/|ir/|passes/'
check codegen 'support/|ir/|passes/|codegen/|runtime/program\.h'
check runtime 'support/|runtime/'
check convert 'support/|ir/|frontend/|runtime/|convert/'
exit $bad
